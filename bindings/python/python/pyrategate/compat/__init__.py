"""Names of other libraries with the semantics of this one, for a change of one import."""
