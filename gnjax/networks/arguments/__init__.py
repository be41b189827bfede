"""What a caller passes, models and samples of every kind, brought into one form or refused."""
