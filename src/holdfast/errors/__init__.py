"""Every error of Holdfast, and how errors are told from one agent to the next.

`tree` is the tree itself, with the facts that each error carries. `reading` and `writing` know the
error objects of JSON-RPC and HTTP+JSON, `article` an older dialect of them, `hops` the agents of a
chain, and `chain` how an agent passes on what it got from the next one.
"""

from holdfast.errors import tree
from holdfast.errors.chain import wrap_downstream
from holdfast.errors.tree import *  # noqa: F403  all of it; its list of names is the only one

__all__ = ["wrap_downstream"]
__all__ += tree.__all__
