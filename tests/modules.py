"""A SPIR-V module of one kernel, ``spec``, that writes 1000 times constant 3 plus constant 5 to each element.

Constant 3 has 32 bits and the value 7 where it is not set, constant 5 has 64 bits and the value 9.
"""

import struct

_I64, _I32, _VECTOR, _IN, _VOID, _OUT, _TYPE = 1, 2, 3, 4, 5, 6, 7
_GLOBAL_ID, _KERNEL, _ARGUMENT, _BEGIN, _C3, _THOUSAND, _C5 = 8, 9, 10, 11, 12, 13, 14


def _text(text: str) -> tuple[int, ...]:
    data = text.encode() + b"\0" * (4 - len(text) % 4)
    return struct.unpack(f"<{len(data) // 4}I", data)


def module(*, thousand: int = 1000) -> bytes:
    """The module; another factor in the place of 1000 gives another module."""
    body = [
        *[(17, capability) for capability in (4, 6, 11)],  # Addresses, Kernel, Int64
        (14, 2, 2),  # a memory model of OpenCL with 64 bits
        (15, 6, _KERNEL, *_text("spec"), _GLOBAL_ID),
        (71, _GLOBAL_ID, 11, 28),  # BuiltIn GlobalInvocationId
        (71, _C3, 1, 3),
        (71, _C5, 1, 5),
        (21, _I64, 64, 0),
        (21, _I32, 32, 0),
        (50, _I32, _C3, 7),
        (43, _I32, _THOUSAND, thousand),
        (50, _I64, _C5, 9, 0),
        (23, _VECTOR, _I64, 3),
        (32, _IN, 1, _VECTOR),
        (19, _VOID),
        (32, _OUT, 5, _I64),
        (33, _TYPE, _VOID, _OUT),
        (59, _IN, _GLOBAL_ID, 1),
        (54, _VOID, _KERNEL, 0, _TYPE),
        (55, _OUT, _ARGUMENT),
        (248, _BEGIN),
        (132, _I32, 15, _C3, _THOUSAND),
        (114, _I64, 16, 15),
        (128, _I64, 17, 16, _C5),
        (61, _VECTOR, 18, _GLOBAL_ID, 2, 32),
        (81, _I64, 19, 18, 0),
        (70, _OUT, 20, _ARGUMENT, 19),
        (62, 20, 17, 2, 8),
        (253,),
        (56,),
    ]
    words = [0x07230203, 0x00010000, 6 << 16, 21, 0]
    for code, *operands in body:
        words += [len(operands) + 1 << 16 | code, *operands]
    return struct.pack(f"<{len(words)}I", *words)
