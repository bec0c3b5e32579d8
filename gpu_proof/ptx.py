"""The kernels that run on the GPU, in PTX, which every driver since r418 compiles for its GPU.

`work` counts to a number in every thread, so that its time follows from the number of threads and
from the multiprocessors that it has, and not from the clock on the wall. `fault` writes to an
address that no memory has.
"""

from typing import Final

SOURCE: Final = b"""
.version 6.4
.target sm_70
.address_size 64

.visible .entry work(.param .u64 rounds, .param .u64 out)
{
    .reg .pred %again;
    .reg .b32 %value;
    .reg .b64 %count, %rounds, %out;
    ld.param.u64 %rounds, [rounds];
    ld.param.u64 %out, [out];
    mov.u32 %value, %tid.x;
    mov.u64 %count, 0;
next:
    mad.lo.u32 %value, %value, 1664525, 1013904223;
    add.u64 %count, %count, 1;
    setp.lt.u64 %again, %count, %rounds;
    @%again bra next;
    st.global.u32 [%out], %value;
    ret;
}

.visible .entry fault(.param .u64 rounds, .param .u64 out)
{
    .reg .b64 %nowhere;
    mov.u64 %nowhere, 4096;
    st.global.u32 [%nowhere], 1;
    ret;
}
\0"""
