//! Writes of places in the file, those that follow each other in one go.

use esker_device::Purpose;

use crate::engine::Engine;
use crate::error::Result;
use crate::place::Sector;

/// Longest single write, in bytes, where slots are written that follow each other.
const RUN_BYTES: usize = 1 << 20;

impl Engine {
    /// Writes slots, those that follow each other in one go.
    pub(crate) fn write_slots(
        &self,
        slots: &mut [(Sector, &[u8])],
        purpose: Purpose,
    ) -> Result<()> {
        self.write_runs(slots, |at, bytes| Ok(self.media.write(at, bytes, purpose)?))
    }

    /// As [`Engine::write_slots`], by `write`.
    pub(crate) fn write_runs(
        &self,
        slots: &mut [(Sector, &[u8])],
        write: impl Fn(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        slots.sort_unstable_by_key(|(sector, _)| *sector);
        let mut rest: &[(Sector, &[u8])] = slots;
        while let Some((first, bytes)) = rest.first() {
            let start = first.offset();
            let mut end = start + bytes.len() as u64;
            let mut run = 1;
            while let Some((next, more)) = rest.get(run) {
                let is_long = (end - start) as usize + more.len() > RUN_BYTES;
                if next.offset() != end || is_long {
                    break;
                }
                end += more.len() as u64;
                run += 1;
            }
            let (now, later) = rest.split_at(run);
            if run == 1 {
                write(start, bytes)?;
            } else {
                let joined = now.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
                write(start, &joined)?;
            }
            rest = later;
        }
        Ok(())
    }
}
