"""The measurements behind the speed tables, one program in each file."""
