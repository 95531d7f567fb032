//! A file or standard input, read ahead by a thread of its own.
//!
//! A read from a pipe or terminal can block for ever. Only this thread blocks; the loading thread
//! can still notice a signal and store what has arrived. At most `CHUNKS_AHEAD + 2` chunks are in
//! memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use esker_terminal::exit::Failure;
use esker_terminal::signals::Interrupt;

const CHUNK_BYTES: usize = 256 * 1024;
const CHUNKS_AHEAD: usize = 4;
/// The time for which an interruption may go unnoticed.
const WAIT: Duration = Duration::from_millis(50);

/// The next event of the input.
pub(crate) enum Event {
    /// Some bytes; never empty.
    Chunk(Vec<u8>),
    /// Nothing yet.
    Idle,
    /// All has been read.
    End,
}

/// The stream that a load reads.
pub(crate) struct Input {
    name: String,
    length_bytes: Option<u64>,
    chunks: Receiver<io::Result<Vec<u8>>>,
}

impl Input {
    /// Opens a file, or standard input for `-`, and begins to read.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Self::read_ahead("stdin".to_owned(), None, io::stdin());
        }
        let name = path.display().to_string();
        // A file that cannot be opened is a mistake on the command line, and not a failed device.
        let unusable = |error: io::Error| Failure::Input(format!("cannot open {name}: {error}"));
        let file = File::open(path).map_err(unusable)?;
        let metadata = file.metadata().map_err(unusable)?;
        if metadata.is_dir() {
            return Err(Failure::Input(format!("cannot read {name}: it is a folder")));
        }
        let length_bytes = metadata.is_file().then_some(metadata.len());
        Self::read_ahead(name, length_bytes, file)
    }

    fn read_ahead(
        name: String,
        length_bytes: Option<u64>,
        source: impl Read + Send + 'static,
    ) -> Result<Self, Failure> {
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        thread::Builder::new()
            .name("esker-input".to_owned())
            .spawn(move || send_chunks(source, &sender))
            .map_err(|source| Failure::System { what: "start a thread", source })?;
        Ok(Self { name, length_bytes, chunks })
    }

    /// The name of the input in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its length, where it has one before it has been read.
    pub(crate) const fn length_bytes(&self) -> Option<u64> {
        self.length_bytes
    }

    /// Waits a little for what comes next.
    pub(crate) fn next(&self, interrupt: &Interrupt) -> Result<Event, Failure> {
        interrupt.check()?;
        match self.chunks.recv_timeout(WAIT) {
            Ok(Ok(chunk)) => Ok(Event::Chunk(chunk)),
            Ok(Err(source)) => Err(Failure::Read { name: self.name.clone(), source }),
            Err(RecvTimeoutError::Timeout) => Ok(Event::Idle),
            Err(RecvTimeoutError::Disconnected) => Ok(Event::End),
        }
    }
}

/// Ends with the stream, with its first error, or when the receiver is dropped.
fn send_chunks(mut source: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let answer = match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => Ok(buffer[..bytes].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = answer.is_err();
        if sender.send(answer).is_err() || failed {
            return;
        }
    }
}
