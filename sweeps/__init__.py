"""What every experiment uses: cells, their store, launchers, tables, claims, the command line."""
