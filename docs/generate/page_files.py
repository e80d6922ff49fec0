"""Names of the files of generated pages."""


def file_of(name: str) -> str:
    """The page of a method or a kind of preconditioner: `biCG-stab(2)` -> `bicg_stab_2.md`."""
    return name.lower().replace("-", "_").replace("(", "_").replace(")", "") + ".md"


def file_of_title(title: str) -> str:
    """The page of the reference with this title: `krylix.sparse` -> `krylix_sparse.md`."""
    return title.lower().replace(" ", "_").replace("-", "_").replace(".", "_") + ".md"
