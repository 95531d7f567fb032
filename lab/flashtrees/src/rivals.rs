//! All trees by name, on a chip and on a device.

use esker_flash::ftl::{Options, PageMapped};
use esker_flash::{Ftl, Nand};

use crate::bftl::{Bftl, Settings};
use crate::bplus::Tree;
use crate::btree::PageNodes;
use crate::ekv::{self, Ekv};
use crate::erase_units::{LayerUnits, RawUnits, timing_of};
use crate::error::{Error, Result};
use crate::flashdb::{Costs, FlashDb};
use crate::inplace::InPlace;
use crate::ipl::Ipl;
use crate::page::LEAF_BYTES;
use crate::sequential::{self, Sequential};
use crate::space::{Pages, TableIn};
use crate::tree::FlashTree;

/// Pages of an erase unit over a device that hides its blocks.
pub const DEVICE_UNIT_PAGES: u32 = 32;

/// A tree that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// [`crate::btree`].
    BTree,
    /// [`crate::bftl`] as it was published.
    Bftl,
    /// [`crate::bftl`] with a buffer and a cache in all of the memory.
    BftlOfBudget,
    /// [`crate::flashdb`].
    FlashDb,
    /// [`crate::ipl`].
    Ipl,
    /// [`crate::inplace`].
    InPlace,
    /// [`crate::ekv`].
    Ekv,
    /// [`crate::sequential`].
    Sequential,
}

impl Rival {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::BTree,
        Self::Bftl,
        Self::BftlOfBudget,
        Self::FlashDb,
        Self::Ipl,
        Self::InPlace,
        Self::Ekv,
        Self::Sequential,
    ];

    /// Its name in reports, which tells the two kinds of BFTL apart.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BTree => "btree",
            Self::Bftl => "bftl",
            Self::BftlOfBudget => "bftl-memory",
            Self::FlashDb => "flashdb",
            Self::Ipl => "ipl",
            Self::InPlace => "inplace",
            Self::Ekv => "ekv",
            Self::Sequential => "sequential",
        }
    }

    /// An empty tree on an erased chip, in `budget` bytes of memory. The translation layer is in
    /// the host, and its table is counted, except that of BFTL. Without a clock, FlashDB takes all
    /// operations to be equally long.
    ///
    /// # Errors
    /// A budget or a chip that is too small; those of the flash.
    pub fn on_chip<N: Nand + 'static>(
        self,
        nand: N,
        options: &Options,
        budget: usize,
    ) -> Result<Box<dyn FlashTree>> {
        match self {
            Self::Ipl => Ok(Box::new(Tree::new(Ipl::new(RawUnits(nand)), budget)?)),
            Self::InPlace => Ok(Box::new(Tree::new(InPlace::new(RawUnits(nand)), budget)?)),
            _ => self.over(PageMapped::format(nand, options)?, TableIn::Host, budget),
        }
    }

    /// An empty tree on a device with a translation layer of its own. IPL has erase units of
    /// `unit_pages` pages there.
    ///
    /// # Errors
    /// Those of [`Rival::on_chip`]; rewriting in place, which such a device does not do.
    pub fn on_device<F: Ftl + 'static>(
        self,
        ftl: F,
        unit_pages: u32,
        budget: usize,
    ) -> Result<Box<dyn FlashTree>> {
        match self {
            Self::Ipl => {
                let units = LayerUnits::new(ftl, unit_pages);
                Ok(Box::new(Tree::new(Ipl::new(units), budget)?))
            }
            Self::InPlace => {
                let what = "a device with a translation layer rewrites nothing in place: use btree";
                Err(Error::Refused(what.to_owned()))
            }
            _ => self.over(ftl, TableIn::Device, budget),
        }
    }

    fn over<F: Ftl + 'static>(
        self,
        ftl: F,
        table: TableIn,
        budget: usize,
    ) -> Result<Box<dyn FlashTree>> {
        let bftl = |ftl, settings| -> Result<Box<dyn FlashTree>> {
            Ok(Box::new(Tree::new(Bftl::new(Pages::new(ftl, TableIn::Device), settings), budget)?))
        };
        match self {
            Self::Bftl => bftl(ftl, Settings::published()),
            Self::BftlOfBudget => bftl(ftl, Settings::of_budget(budget)),
            Self::FlashDb => {
                let costs = costs_of(ftl.dyn_nand());
                let nodes = FlashDb::new(Pages::new(ftl, table), costs, budget);
                Ok(Box::new(Tree::new(nodes, budget)?))
            }
            Self::Ekv => Ok(Box::new(Ekv::new(ftl, table, ekv::Settings::of_budget(budget))?)),
            Self::Sequential => {
                let settings = sequential::Settings::of_budget(budget);
                Ok(Box::new(Sequential::new(ftl, table, settings)?))
            }
            Self::BTree | Self::Ipl | Self::InPlace => {
                let nodes = PageNodes::new(Pages::new(ftl, table), LEAF_BYTES);
                Ok(Box::new(Tree::new(nodes, budget)?))
            }
        }
    }
}

fn costs_of(nand: &dyn Nand) -> Costs {
    let timing = timing_of(nand);
    let geometry = nand.geometry();
    Costs::new(&timing, geometry.page_size() as usize, geometry.pages_per_block())
}
