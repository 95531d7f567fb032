//! The adapter of simulated flash ([`esker_flash::Nand`]) to [`Chip`].
//!
//! The trait and the adapter are two things because `esker-flash` needs the standard library. The
//! spare area is not used: it gets a constant.

use alloc::string::ToString;

use esker_flash::nand::{BlockId, Cause, Lpn, PageKind, Ppn, Spare};
use esker_flash::{Error, Nand};

use crate::chip::{BlockNo, Chip, Costs, Fault, PageNo, Read};

/// Simulated flash as a chip.
#[derive(Clone, Debug)]
pub struct Simulated<N>(pub N);

const SPARE: Spare = Spare { lpn: Lpn::NONE, kind: PageKind::Data, seq: 0 };

impl<N: Nand> Chip for Simulated<N> {
    fn page_bytes(&self) -> usize {
        self.0.geometry().page_size() as usize
    }

    fn pages_per_block(&self) -> u32 {
        self.0.geometry().pages_per_block()
    }

    fn blocks(&self) -> u32 {
        self.0.geometry().blocks()
    }

    fn costs(&self) -> Costs {
        let Some(timing) = self.0.clock().map(esker_flash::nand::Clock::timing) else {
            return Costs { read_ns: 50_600, program_ns: 225_600 };
        };
        let transfer = timing.transfer_ns_per_page;
        Costs { read_ns: timing.read_ns + transfer, program_ns: timing.program_ns + transfer }
    }

    fn read(&mut self, page: PageNo, data: &mut [u8]) -> Result<Read, Fault> {
        let found = self.0.read(Ppn(page.0), data, Cause::Host);
        self.0.wait();
        match found {
            Ok(_) => Ok(Read::Data),
            Err(Error::Erased(_)) => Ok(Read::Erased),
            Err(Error::Torn(_)) => Ok(Read::Unreadable),
            Err(error) => Err(Fault::Other(error.to_string())),
        }
    }

    fn program(&mut self, page: PageNo, data: &[u8]) -> Result<(), Fault> {
        let done = self.0.program(Ppn(page.0), data, SPARE, Cause::Host);
        self.0.wait();
        done.map_err(|error| Fault::Other(error.to_string()))
    }

    fn erase(&mut self, block: BlockNo) -> Result<(), Fault> {
        let done = self.0.erase(BlockId(block.0), Cause::Host);
        self.0.wait();
        done.map_err(|error| Fault::Other(error.to_string()))
    }
}
