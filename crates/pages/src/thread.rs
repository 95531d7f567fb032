//! The store's thread: it makes relaxed commits durable in time, and takes checkpoints and grows
//! the file while commits continue. It starts with the first transaction.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use esker_device::Purpose;
use parking_lot::Mutex;

use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::log::concurrent_checkpoint::Unfinished;
use crate::log::turns::Idle;

/// The thread, once it has started.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Thread {
    /// Starts the thread where there is none yet. Where none can be had, the bound in bytes and
    /// the next sync still hold.
    pub(crate) fn start(&self, engine: &Arc<Engine>) {
        let Some(interval) = engine.options.relaxed_interval else { return };
        let mut handle = self.handle.lock();
        if handle.is_some() {
            return;
        }
        let weak = Arc::downgrade(engine);
        let name = "esker-pages".to_owned();
        *handle = std::thread::Builder::new().name(name).spawn(move || run(&weak, interval)).ok();
        engine.core.lock().has_thread = handle.is_some();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self, engine: &Engine) {
        engine.core.lock().is_closed = true;
        engine.wake.notify_all();
        if let Some(handle) = self.handle.lock().take() {
            let _ended = handle.join();
        }
    }
}

/// The next work of the thread.
enum Job {
    Flush,
    Checkpoint,
    Grow,
    /// The process has not written for a moment: lets another one.
    StepDown,
    End,
}

/// Does what commits ask for, until the store is closed.
fn run(engine: &Weak<Engine>, interval: Duration) {
    let (mut due, mut idle) = (None, Idle::default());
    while let Some(engine) = engine.upgrade() {
        let outcome = match next_job(&engine, interval, &mut due, &mut idle) {
            Job::Flush => engine.flush(),
            Job::Checkpoint => checkpoint(&engine),
            Job::Grow => grow(&engine),
            Job::StepDown => engine.step_down().map(drop),
            Job::End => return,
        };
        // What failed has poisoned the store, which the next commit says; or there was no room.
        if outcome.is_err() && engine.is_over() {
            engine.pass_on_after_failure();
            engine.core.lock().has_thread = false;
            return;
        }
    }
}

/// Takes a checkpoint while commits continue.
fn checkpoint(engine: &Arc<Engine>) -> Result<()> {
    {
        // The file is being made shorter, which takes one anyway.
        let mut core = engine.core.lock();
        if core.mover.is_any() {
            core.is_checkpoint_wanted = false;
            return Ok(());
        }
    }
    let outcome = Unfinished::begin(engine).and_then(|mut unfinished| {
        unfinished.save()?;
        unfinished.finish().map(drop)
    });
    engine.core.lock().is_checkpoint_wanted = false;
    if outcome.is_err() {
        engine.counters.checkpoints_failed.add(1);
    }
    outcome.and_then(|()| engine.allocation.collect_in_background(engine))
}

/// Sees to room. Where the device has none, commits say so when they need it.
fn grow(engine: &Engine) -> Result<()> {
    let outcome = engine.grow_in_background();
    let mut core = engine.core.lock();
    core.is_growth_wanted = false;
    core.is_growth_in_vain = outcome.is_err();
    outcome
}

/// Waits for something to do. `due` is when a relaxed commit must be durable.
fn next_job(
    engine: &Engine,
    interval: Duration,
    due: &mut Option<Instant>,
    idle: &mut Idle,
) -> Job {
    let mut core = engine.core.lock();
    loop {
        if core.is_closed {
            return Job::End;
        }
        if core.is_checkpoint_wanted {
            return Job::Checkpoint;
        }
        if core.is_growth_wanted {
            return Job::Grow;
        }
        // Half of what may gather: the rest has room while this is on its way.
        let is_much = core.unsynced_bytes >= engine.options.relaxed_bytes / 2;
        let is_due = due.is_some_and(|at| at <= Instant::now());
        if core.is_flush_wanted && (is_much || is_due) {
            core.is_flush_wanted = false;
            *due = None;
            return Job::Flush;
        }
        let at = if core.is_flush_wanted {
            Some(*due.get_or_insert_with(|| Instant::now() + interval))
        } else {
            *due = None;
            None
        };
        let keeps = engine.keeps_turn_until(idle);
        if keeps.is_some_and(|until| until <= Instant::now())
            && engine.is_turn_over(idle, core.durable + 1 >= core.log.number)
        {
            return Job::StepDown;
        }
        match at.into_iter().chain(keeps).min() {
            Some(until) => drop(engine.wake.wait_until(&mut core, until)),
            None => engine.wake.wait(&mut core),
        }
    }
}

impl Engine {
    /// After a relaxed commit: wakes the thread, or syncs where too much has gathered.
    pub(crate) fn sync_soon(&self, core: &mut Core) {
        if core.unsynced_bytes >= self.options.relaxed_bytes {
            // An error has poisoned the store; this commit keeps its promise, which is its order.
            let _poisoned = self.sync_core(core);
        } else if !core.is_flush_wanted || core.unsynced_bytes >= self.options.relaxed_bytes / 2 {
            core.is_flush_wanted = true;
            self.wake.notify_all();
        }
    }

    /// Makes everything committed durable. Commits continue meanwhile.
    pub(crate) fn flush(&self) -> Result<()> {
        if self.poison.get().is_some() {
            return Err(Error::Poisoned);
        }
        match self.check_poison() {
            // What another process has written is in the same file.
            Err(Error::ReadOnly { .. }) if self.may_write() => {
                return Ok(self.media.flush(Purpose::Log)?);
            }
            outcome => outcome?,
        }
        let (target, durable, bytes) = {
            let core = self.core.lock();
            (core.log.number - 1, core.durable, core.unsynced_bytes)
        };
        if durable >= target {
            return Ok(());
        }
        self.media.flush(Purpose::Log).map_err(|error| self.poisoned(error))?;
        self.counters.syncs.add(1);
        let mut core = self.core.lock();
        // Unless a sync that began later ended sooner.
        if core.durable < target {
            core.durable = target;
            core.unsynced_bytes = core.unsynced_bytes.saturating_sub(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use esker_device::memory::MemoryDevice;
    use esker_device::{Caching, Device, Open};

    use crate::{Durability, Options, PageStore};

    #[test]
    fn commits_within_an_interval_share_a_sync() {
        let file = MemoryDevice::new().open("store", Open::CreateNew, Caching::Buffered).unwrap();
        let store = PageStore::open(file, Options::default()).unwrap();
        let before = store.stats().syncs;
        let started = std::time::Instant::now();
        for number in 0..2_000_u32 {
            let mut writer = store.begin(&store.pin()).unwrap();
            writer.write(0, 0, &number.to_le_bytes()).unwrap();
            writer.commit(Durability::Relaxed).unwrap();
        }
        let intervals = started.elapsed().as_millis() as u64 / 100;
        let syncs = store.stats().syncs - before;
        // Two more are those of the checkpoint that the first commit takes.
        assert!(syncs <= intervals + 4, "{syncs} syncs in {intervals} intervals");
    }
}
