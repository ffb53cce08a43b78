// A user-mode kernel of 6.1 gives a process its registers back in a buffer of a fixed size. A processor with AMX has a
// larger state than that, and the host takes only the whole of it: so the rest is filled up with what is there.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202
#define FEATURES 512  // where in the state is said which parts of it are in use
#define FITS 0xffUL   // those that the guest's buffer can hold

static unsigned char whole[1 << 16];

static long set_state(pid_t pid, const struct iovec *part)
{
    struct iovec state = {whole, sizeof whole};
    if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &state) < 0)
        return -1;
    memcpy(whole, part->iov_base, part->iov_len < state.iov_len ? part->iov_len : state.iov_len);
    unsigned long used;
    memcpy(&used, whole + FEATURES, sizeof used);
    used &= FITS;
    memcpy(whole + FEATURES, &used, sizeof used);
    return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &state);
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list given;
    va_start(given, request);
    pid_t pid = va_arg(given, pid_t);
    void *address = va_arg(given, void *), *data = va_arg(given, void *);
    va_end(given);
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE)
        return set_state(pid, data);
    if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
        return syscall(SYS_ptrace, request, pid, address, data);
    long word;  // the C library returns what the kernel writes
    if (syscall(SYS_ptrace, request, pid, address, &word) < 0)
        return -1;
    errno = 0;
    return word;
}
