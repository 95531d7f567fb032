//! What a workload of tables asks of a key-value store: rows that are read, written and removed.
//!
//! A table and each of its indexes is a number of four bytes in front of the key, as in MyRocks;
//! columns of a key follow as big-endian integers, so that keys have the order of the columns.

/// One access to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// Writes a row.
    Put {
        /// Its key, at most 255 bytes.
        key: Vec<u8>,
        /// Its contents.
        value: Vec<u8>,
    },
    /// Removes a row, whether or not it is there.
    Delete {
        /// Its key.
        key: Vec<u8>,
    },
    /// Reads a row.
    Get {
        /// Its key.
        key: Vec<u8>,
    },
    /// Reads the rows from `from` on, below `to`.
    Scan {
        /// The first possible key.
        from: Vec<u8>,
        /// The first key that is not read.
        to: Vec<u8>,
        /// The most rows.
        most: u32,
    },
}

impl Row {
    /// Whether it changes anything.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Delete { .. })
    }

    /// Bytes of key and value that a write brings.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        match self {
            Self::Put { key, value } => (key.len() + value.len()) as u64,
            Self::Delete { key } => key.len() as u64,
            Self::Get { .. } | Self::Scan { .. } => 0,
        }
    }
}

/// A key of a table's or index's number and columns of eight bytes.
#[must_use]
pub fn key(table: u32, columns: &[u64]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + 8 * columns.len());
    key.extend_from_slice(&table.to_be_bytes());
    columns.iter().for_each(|column| key.extend_from_slice(&column.to_be_bytes()));
    key
}

/// A key of a table's or index's number and columns of four bytes.
#[must_use]
pub fn narrow_key(table: u32, columns: &[u32]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + 4 * columns.len());
    key.extend_from_slice(&table.to_be_bytes());
    columns.iter().for_each(|column| key.extend_from_slice(&column.to_be_bytes()));
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_their_columns() {
        let keys = [
            key(1, &[0, 5]),
            key(1, &[1, 4]),
            key(1, &[256, 0]),
            key(2, &[0, 0]),
            narrow_key(3, &[1, 2]),
            narrow_key(3, &[1, 300]),
        ];
        assert!(keys.is_sorted());
        assert_eq!((keys[0].len(), keys[4].len()), (20, 12));
    }

    #[test]
    fn writes_bring_bytes_and_reads_none() {
        let (key, value) = (vec![1; 4], vec![2; 10]);
        let put = Row::Put { key: key.clone(), value };
        let delete = Row::Delete { key: key.clone() };
        assert_eq!((put.bytes_written(), delete.bytes_written()), (14, 4));
        assert!(put.writes() && delete.writes());
        let get = Row::Get { key: key.clone() };
        let scan = Row::Scan { from: key.clone(), to: key, most: 1 };
        assert!(!get.writes() && !scan.writes());
        assert_eq!(get.bytes_written() + scan.bytes_written(), 0);
    }
}
