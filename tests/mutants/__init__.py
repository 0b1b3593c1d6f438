"""`make mutants`: which small mistakes in the product no test would notice."""
