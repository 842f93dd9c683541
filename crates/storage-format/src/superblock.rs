//! The file `VERSION`: what a directory is, whose, and which format it has.
//!
//! ```text
//!  0 crc of 4..32   4 magic "PHST"   8 version   12 block bytes   16 store id (8)   24 role   28 number
//! ```
//! Written twice, at 0 and at 512, so that one bad sector does not hide a whole store. Never changed after creation.

use super::{FORMAT_VERSION, crc32c, get_u32, get_u64, put_u32, put_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"PHST");
const BYTES: usize = 32;
const COPY_AT: usize = 512;

/// Length of the file.
pub const FILE_BYTES: usize = 1024;

/// Purpose of a directory. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// Journal segments.
    Journal = 1,
    /// Entry logs, and in the first one the checkpoint.
    Ledgers = 2,
}

/// Properties that are fixed for the life of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Groups start at multiples of this and no durable block is ever written again.
    pub block_bytes: u32,
    /// A random number that marks everything this store writes, so that bytes of another life of the same disk
    /// blocks, or bytes a client sends, are never taken for its own.
    pub store_id: u64,
    /// Purpose of the directory.
    pub role: Role,
    /// Number among the directories with this role, from 0.
    pub number: u32,
}

/// Reason why a superblock was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Neither copy is whole.
    Damaged,
    /// The format is one that this release does not read.
    Version(u32),
}

impl Superblock {
    /// The whole file: both copies.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut file = vec![0; FILE_BYTES];
        for at in [0, COPY_AT] {
            let copy = &mut file[at..at + BYTES];
            put_u32(copy, 4, MAGIC);
            put_u32(copy, 8, FORMAT_VERSION);
            put_u32(copy, 12, self.block_bytes);
            put_u64(copy, 16, self.store_id);
            put_u32(copy, 24, self.role as u32);
            put_u32(copy, 28, self.number);
            let crc = crc32c(&copy[4..]);
            put_u32(copy, 0, crc);
        }
        file
    }

    /// Decodes the file.
    ///
    /// # Errors
    /// Neither copy is whole, or the format is another.
    pub fn decode(file: &[u8]) -> Result<Self, Refused> {
        let mut refused = Refused::Damaged;
        for at in [0, COPY_AT] {
            match file.get(at..at + BYTES).and_then(decode_copy) {
                Some(Ok(found)) => return Ok(found),
                Some(Err(version)) => refused = Refused::Version(version),
                None => {}
            }
        }
        Err(refused)
    }

    /// Returns the message for a directory that was named as number `number` with this role and is another one of its
    /// store.
    #[must_use]
    pub fn other_place(self, role: Role, number: u32) -> Option<String> {
        let kind = match self.role {
            Role::Journal => "journal",
            Role::Ledgers => "ledger",
        };
        let is_other = (self.role, self.number) != (role, number);
        is_other.then(|| {
            let own = self.number;
            format!("is {kind} directory number {own} of its store; name the directories in their order")
        })
    }

    /// The mark that everything in one file of this directory carries.
    #[must_use]
    pub fn salt(self, file: u32) -> u32 {
        let mut seed = [0; 20];
        put_u64(&mut seed, 0, self.store_id);
        put_u32(&mut seed, 8, self.role as u32);
        put_u32(&mut seed, 12, self.number);
        put_u32(&mut seed, 16, file);
        crc32c(&seed)
    }
}

fn decode_copy(copy: &[u8]) -> Option<Result<Superblock, u32>> {
    if get_u32(copy, 4)? != MAGIC || get_u32(copy, 0)? != crc32c(copy.get(4..)?) {
        return None;
    }
    let version = get_u32(copy, 8)?;
    if version != FORMAT_VERSION {
        return Some(Err(version));
    }
    let block_bytes = get_u32(copy, 12)?;
    let role = match get_u32(copy, 24)? {
        1 => Role::Journal,
        2 => Role::Ledgers,
        _ => return None,
    };
    let number = get_u32(copy, 28)?;
    matches!(block_bytes, 512 | 4096).then_some(Ok(Superblock {
        block_bytes,
        store_id: get_u64(copy, 16)?,
        role,
        number,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_copy_is_enough_and_another_version_is_named() {
        let block = Superblock {
            block_bytes: 4096,
            store_id: 77,
            role: Role::Ledgers,
            number: 3,
        };
        let file = block.encode();
        for at in [0, COPY_AT] {
            let mut hurt = file.clone();
            hurt[at + 9] ^= 1;
            assert_eq!(Superblock::decode(&hurt), Ok(block));
        }
        for version in [1, 9] {
            let mut other = file.clone();
            for at in [0, COPY_AT] {
                put_u32(&mut other, at + 8, version);
                let crc = crc32c(&other[at + 4..at + BYTES]);
                put_u32(&mut other, at, crc);
            }
            assert_eq!(Superblock::decode(&other), Err(Refused::Version(version)));
        }
        assert_eq!(Superblock::decode(b"short"), Err(Refused::Damaged));
    }

    #[test]
    fn every_file_has_its_own_salt() {
        let one = |role, number| Superblock {
            block_bytes: 512,
            store_id: 1,
            role,
            number,
        };
        let mut salts = Vec::new();
        for role in [Role::Journal, Role::Ledgers] {
            for number in 0..3 {
                for file in 0..3 {
                    salts.push(one(role, number).salt(file));
                }
            }
        }
        salts.sort_unstable();
        salts.dedup();
        assert_eq!(salts.len(), 18);
    }
}
