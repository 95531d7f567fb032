//! A file that is locked with `flock`, and the queue of openings that wait for it.
//!
//! The lock belongs to an open file description and not to a process: closing another descriptor of
//! the file does not release it, and a process leaves no lock behind, however it dies. A child
//! created by `fork` has the same open file description; it closes its copy immediately
//! (`crate::inherited`). The process that took the lock releases it explicitly, which ends it for
//! all copies.
//!
//! A waiting opening has a ticket: a lock of one byte far behind the end of the file, at the
//! microsecond at which it came. Its turn comes when there is no earlier ticket; only then does it
//! try the lock, a thousand times a second. So openings are served in order of arrival, however
//! often one of them comes back, and a hundred waiting processes cause little load. A process that
//! dies loses its ticket. Tickets are locks of an open file description (`F_OFD_SETLK`), shared
//! ones, which are possible on a file that is only read; two of the same microsecond are both
//! first. Where a file system has no such locks, every waiting opening tries the lock.

#![expect(unsafe_code, reason = "locks of open file descriptions, which rustix does not have")]

use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::inherited::{self, Place};
use crate::planted::{self, Bug};
use crate::process::Process;

/// The offset of the first ticket: behind every byte that a file can have, and that another program
/// locks.
const TICKETS: i64 = 1 << 62;
/// The time that the first in the queue waits between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The time that the others wait before they look again.
const PAUSE: Duration = Duration::from_millis(4);

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Shared with all other shared holders.
    Shared,
    /// Exclusive.
    Exclusive,
}

/// The result of waiting for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is held.
    Locked,
    /// Others hold it.
    Refused,
    /// A signal came whose handler does not restart system calls.
    Interrupted,
}

/// An open file that may be locked, until this is dropped or the process dies. A child created by
/// `fork` holds no part of the lock.
#[derive(Debug)]
pub struct LockFile {
    /// Not dropped in a child by `fork`, which has closed it already.
    file: ManuallyDrop<OwnedFd>,
    place: &'static Place,
    process: Process,
}

impl LockFile {
    /// A file that `open` opens, perhaps more than once.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E>(open: impl FnMut() -> Result<OwnedFd, E>) -> Result<Self, E> {
        // First, so that forks are watched.
        let process = Process::current();
        let (file, place) = inherited::open(open)?;
        if planted::is(Bug::LockInherited) {
            place.clear();
        }
        Ok(Self { file: ManuallyDrop::new(file), place, process })
    }

    /// The process that has it open. In others it is not used.
    #[must_use]
    pub const fn process(&self) -> Process {
        self.process
    }

    fn file(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.process.is_current() { Ok(self.file.as_fd()) } else { Err(Errno::BADF) }
    }

    /// Locks it, or returns `false` if others hold it. A lock of the other kind is released first,
    /// even if the new one is refused.
    ///
    /// # Errors
    /// Those of the system; [`Errno::BADF`] in a child by `fork`.
    pub fn try_lock(&self, lock: Lock) -> Result<bool, Errno> {
        let operation = match lock {
            Lock::Shared => FlockOperation::NonBlockingLockShared,
            Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        let file = self.file()?;
        match retry_on_intr(|| flock(file, operation)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Locks it within `patience`, in the order in which processes came. Returns immediately where
    /// no other opening has it or waits. Blocks no other thread.
    ///
    /// # Errors
    /// Those of the system; [`Errno::BADF`] in a child by `fork`.
    pub fn lock_within(&self, lock: Lock, patience: Duration) -> Result<Waited, Errno> {
        // An opening that waits already has it next.
        if !self.is_waited_for(None)? && self.try_lock(lock)? {
            return Ok(Waited::Locked);
        }
        if patience.is_zero() {
            return Ok(Waited::Refused);
        }
        let begun = Instant::now();
        let ticket = self.take_ticket()?;
        let waited = self.wait(lock, ticket, || patience.checked_sub(begun.elapsed()));
        if ticket.is_some() {
            self.set_ticket(0, libc::F_UNLCK)?;
        }
        waited
    }

    fn wait(
        &self,
        lock: Lock,
        ticket: Option<i64>,
        left: impl Fn() -> Option<Duration>,
    ) -> Result<Waited, Errno> {
        loop {
            let is_first = ticket.is_none() || !self.is_waited_for(ticket)?;
            if is_first && self.try_lock(lock)? {
                return Ok(Waited::Locked);
            }
            let Some(left) = left() else { return Ok(Waited::Refused) };
            let pause = if is_first { FIRST_PAUSE } else { PAUSE };
            if pause_for(pause.min(left)).is_err() {
                return Ok(Waited::Interrupted);
            }
        }
    }

    /// Whether another opening waits for the lock, with a ticket before this one.
    ///
    /// # Errors
    /// Those of the system; [`Errno::BADF`] in a child by `fork`.
    pub fn is_waited_for(&self, before: Option<i64>) -> Result<bool, Errno> {
        if planted::is(Bug::QueueJumped) {
            return Ok(false);
        }
        // All of them, where none is named.
        let len = before.map_or(0, |ticket| ticket - TICKETS);
        if before.is_some() && len == 0 {
            return Ok(false);
        }
        let mut asked = range(libc::F_WRLCK, TICKETS, len);
        let file = self.file()?.as_raw_fd();
        // SAFETY: the descriptor is open, and the structure is there for the call.
        let answer = unsafe { libc::fcntl(file, libc::F_OFD_GETLK, &raw mut asked) };
        // A lock of the whole file is no ticket: some file systems make one of `flock`.
        let is_ticket =
            libc::c_int::from(asked.l_type) != libc::F_UNLCK && asked.l_start >= TICKETS;
        Ok(answer == 0 && is_ticket)
    }

    /// Takes a place at the end of the queue; `None` where this file system has no queue.
    fn take_ticket(&self) -> Result<Option<i64>, Errno> {
        let now = clock_gettime(ClockId::Boottime);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        let ticket = TICKETS.saturating_add(micros);
        Ok(self.set_ticket(micros, libc::F_RDLCK)?.then_some(ticket))
    }

    /// Takes the ticket of that moment, or gives all of them back.
    fn set_ticket(&self, micros: i64, kind: libc::c_int) -> Result<bool, Errno> {
        let len = i64::from(kind != libc::F_UNLCK);
        let wanted = range(kind, TICKETS.saturating_add(micros), len);
        let file = self.file()?.as_raw_fd();
        // SAFETY: the descriptor is open, and the structure is there for the call.
        Ok(unsafe { libc::fcntl(file, libc::F_OFD_SETLK, &raw const wanted) } == 0)
    }
}

/// Bytes to be locked: to the end, where `len` is 0.
fn range(kind: libc::c_int, start: i64, len: i64) -> libc::flock {
    // SAFETY: a structure of numbers, for which zeros are right.
    let mut range = unsafe { mem::zeroed::<libc::flock>() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (start, len);
    range
}

/// Sleeps. A signal ends it as it ends a read: if its handler was set without `SA_RESTART`.
fn pause_for(pause: Duration) -> Result<(), Errno> {
    let Ok(timer) = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC) else {
        // No descriptor to be had.
        std::thread::sleep(pause);
        return Ok(());
    };
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let nanos = i64::from(pause.subsec_nanos().max(1));
    let value = Timespec { tv_sec: pause.as_secs().cast_signed(), tv_nsec: nanos };
    let when = Itimerspec { it_interval: none, it_value: value };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &when)?;
    rustix::io::read(&timer, &mut [0; 8]).map(drop)
}

/// Locks of single bytes, at any offset up to 2^61: they have nothing to do with contents, and end
/// with this opening, however its process dies. They are other locks than those of the whole file.
impl LockFile {
    /// Locks a byte, or returns `false` if another opening has it.
    ///
    /// # Errors
    /// Those of the system; [`Errno::BADF`] in a child by `fork`.
    pub fn try_lock_byte(&self, byte: u64) -> Result<bool, Errno> {
        match self.set_byte(byte, libc::F_WRLCK) {
            Err(Errno::ACCESS | Errno::AGAIN) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Unlocks a byte.
    ///
    /// # Errors
    /// As [`LockFile::try_lock_byte`].
    pub fn unlock_byte(&self, byte: u64) -> Result<(), Errno> {
        self.set_byte(byte, libc::F_UNLCK)
    }

    fn set_byte(&self, byte: u64, kind: libc::c_int) -> Result<(), Errno> {
        let start = i64::try_from(byte).ok().filter(|start| *start < TICKETS / 2);
        let wanted = range(kind, start.ok_or(Errno::INVAL)?, 1);
        let file = self.file()?.as_raw_fd();
        // SAFETY: the descriptor is open, and the structure is there for the call.
        let answer = unsafe { libc::fcntl(file, libc::F_OFD_SETLK, &raw const wanted) };
        if answer == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Whether another opening has locked a byte.
    ///
    /// # Errors
    /// As [`LockFile::try_lock_byte`].
    pub fn is_byte_locked(&self, byte: u64) -> Result<bool, Errno> {
        let start = i64::try_from(byte).ok().filter(|start| *start < TICKETS / 2);
        let mut asked = range(libc::F_WRLCK, start.ok_or(Errno::INVAL)?, 1);
        let file = self.file()?.as_raw_fd();
        // SAFETY: the descriptor is open, and the structure is there for the call.
        let answer = unsafe { libc::fcntl(file, libc::F_OFD_GETLK, &raw mut asked) };
        if answer != 0 {
            return Err(last_error());
        }
        Ok(libc::c_int::from(asked.l_type) != libc::F_UNLCK)
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl AsFd for LockFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // In a child another file may have its number by now.
        if !self.process.is_current() {
            return;
        }
        // A child that did not run what `pthread_atfork` says has the same opening still.
        if !planted::is(Bug::LockInherited) {
            let _ended = flock(&*self.file, FlockOperation::Unlock);
            self.place.clear();
        }
        // SAFETY: it is not used from here on.
        drop(unsafe { ManuallyDrop::take(&mut self.file) });
    }
}

#[cfg(test)]
mod tests;
