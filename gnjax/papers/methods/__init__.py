"""How the operators of this package compute kappa; they bring these methods themselves."""
