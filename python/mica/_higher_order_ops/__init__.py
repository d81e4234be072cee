"""Operations whose arguments are functions: run as the Python they are; within graphs they are nodes."""

from mica._higher_order_ops.associative_scan import associative_scan
from mica._higher_order_ops.cond import cond
from mica._higher_order_ops.foreach_map import foreach_map
from mica._higher_order_ops.map import map
from mica._higher_order_ops.out_dtype import out_dtype
from mica._higher_order_ops.scan import scan
from mica._higher_order_ops.while_loop import while_loop

__all__ = ["associative_scan", "cond", "foreach_map", "map", "out_dtype", "scan", "while_loop"]
