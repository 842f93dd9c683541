//! Hash functions that clients, brokers and stored data must agree on.

use std::cmp::Ordering;

/// CRC32-C over `bytes`, the checksum of stored entries.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC32-C of two runs of bytes one after the other, from that of each and the length of the second: some hundred
/// nanoseconds, whatever the length. A CRC is a remainder, so zeros behind the first run multiply its own by a power of x.
pub fn crc32c_joined(first: u32, second: u32, second_bytes: usize) -> u32 {
    let mut shifted = first;
    let mut bytes = second_bytes;
    for power in &BYTES_SHIFT {
        if bytes & 1 == 1 {
            shifted = multiplied(shifted, *power);
        }
        bytes >>= 1;
        if bytes == 0 {
            break;
        }
    }
    shifted ^ second
}

/// The polynomial of CRC32-C without its highest power; the highest bit of a number is the lowest power, as in the checksum.
const CRC32C_POLYNOMIAL: u32 = 0x82f6_3b78;

/// Factors by which 1, 2, 4, … zero bytes after a run multiply its remainder.
#[expect(clippy::indexing_slicing, reason = "a place outside would not compile")]
const BYTES_SHIFT: [u32; usize::BITS as usize] = {
    let mut shifts = [0; usize::BITS as usize];
    // x to the 8th: a byte.
    shifts[0] = 1 << (31 - 8);
    let mut at = 1;
    while at < shifts.len() {
        shifts[at] = multiplied(shifts[at - 1], shifts[at - 1]);
        at += 1;
    }
    shifts
};

/// The product of two remainders, modulo the polynomial.
const fn multiplied(one: u32, other: u32) -> u32 {
    let mut product = 0;
    let mut addend = other;
    let mut left = one;
    while left != 0 {
        // Without branches on what the bits are: they are as good as random.
        product ^= addend & ((left as i32) >> 31) as u32;
        left <<= 1;
        addend = (addend >> 1) ^ (CRC32C_POLYNOMIAL & (addend & 1).wrapping_neg());
    }
    product
}

/// The place of a topic in its namespace's bundles: CRC32 of the full name, compared as an unsigned number.
pub fn bundle_hash(topic: &str) -> u32 {
    crc_fast::crc32_iso_hdlc(topic.as_bytes())
}

/// The fingerprint of a set of topic names that GET_TOPICS_OF_NAMESPACE and the topic watcher exchange.
///
/// The order of `topics` does not matter: they are sorted by UTF-16 code unit, joined by commas and summed with CRC32-C; the
/// sum is printed low byte first in lower-case hex. No topic at all gives `00000000`.
pub fn topics_hash<S: AsRef<str>>(topics: &[S]) -> String {
    let mut sorted: Vec<&str> = topics.iter().map(AsRef::as_ref).collect();
    sorted.sort_unstable_by(|a, b| compare_utf16(a, b));
    let sum = crc32c(sorted.join(",").as_bytes());
    format!("{:08x}", sum.swap_bytes())
}

fn compare_utf16(a: &str, b: &str) -> Ordering {
    // UTF-8 and UTF-16 order differ only beyond the basic plane, so plain bytes decide for nearly every name.
    if a.is_ascii() && b.is_ascii() {
        a.cmp(b)
    } else {
        a.encode_utf16().cmp(b.encode_utf16())
    }
}

/// MurmurHash3, 32-bit x86 variant, seed 0, with the sign bit cleared: the hash of a key in the protocol.
pub fn murmur3_32(bytes: &[u8]) -> u32 {
    murmur3_32_unsigned(bytes) & 0x7fff_ffff
}

fn murmur3_32_unsigned(bytes: &[u8]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let scramble = |k: u32| k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut hash = 0_u32;
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let last = tail
        .iter()
        .rev()
        .fold(0_u32, |k, byte| (k << 8) | u32::from(*byte));
    hash ^= scramble(last);
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Size of the hash range of Key_Shared with sticky or auto-split ranges; slots are 1 to 65535.
pub const KEY_SLOTS: u32 = 65_536;

/// Size of the hash range of Key_Shared with consistent hashing; slots are 1 to 65535.
pub const RING_SLOTS: u32 = 65_535;

/// Slot of a key for sticky and auto-split ranges. 0 is never used: it stands for "not computed" and becomes 1.
pub fn key_slot(key: &[u8]) -> u32 {
    (murmur3_32(key) % KEY_SLOTS).max(1)
}

/// Slot of a key on the consistent-hashing ring.
pub fn ring_slot(key: &[u8]) -> u32 {
    murmur3_32(key) % RING_SLOTS + 1
}

/// Slot of point `point` of a consumer on the consistent-hashing ring.
///
/// `name_index` distinguishes consumers of one name: the lowest number from 0 that none of them holds.
pub fn ring_point(consumer_name: &str, name_index: u32, point: u32) -> u32 {
    ring_slot(format!("{consumer_name}\0{name_index}\0{point}").as_bytes())
}

/// Java's `String.hashCode` with the sign bit cleared: how clients choose a partition for a key by default.
pub fn java_string_hash(text: &str) -> u32 {
    let hash = text.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    });
    hash & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_hashes_are_those_of_the_reference() {
        let table = [
            ("", 0, 1, 1, 0),
            ("a", 1_009_084_850, 27_058, 42_456, 97),
            ("key-0", 1_664_612_543, 63_679, 23_544, 101_943_362),
            ("key-1", 414_258_592, 5_536, 11_858, 101_943_363),
            ("key-2", 1_945_654_540, 21_772, 51_461, 101_943_364),
            ("hello", 613_153_351, 64_071, 7_892, 99_162_322),
            ("order-42", 1_259_446_670, 41_358, 60_576, 1_234_255_197),
            ("日本", 1_155_135_810, 63_810, 15_901, 835_047),
            ("0123456789abcdef", 919_068_895, 57_567, 6_056, 285_443_752),
        ];
        for (key, murmur, slot, ring, java) in table {
            assert_eq!(murmur3_32(key.as_bytes()), murmur, "{key}");
            assert_eq!(key_slot(key.as_bytes()), slot, "{key}");
            assert_eq!(ring_slot(key.as_bytes()), ring, "{key}");
            assert_eq!(java_string_hash(key), java, "{key}");
        }
    }

    #[test]
    fn ring_points_are_those_of_the_reference() {
        let points = |name| (0..5).map(|i| ring_point(name, 0, i)).collect::<Vec<_>>();
        assert_eq!(points("c1"), [34_662, 61_273, 23_534, 54_464, 29_173]);
        assert_eq!(points("c2"), [18_701, 2_959, 61_677, 13_833, 43_465]);
    }

    #[test]
    fn topic_sets_hash_as_in_the_reference() {
        let (a, b) = ("persistent://public/default/a", "persistent://public/default/b");
        let t = |i| format!("persistent://public/default/t-partition-{i}");
        assert_eq!(topics_hash::<&str>(&[]), "00000000");
        assert_eq!(topics_hash(&[a]), "e4a876e3");
        assert_eq!(topics_hash(&[b, a]), "c7559e98");
        assert_eq!(topics_hash(&[a, b]), "c7559e98");
        assert_eq!(topics_hash(&[t(10), t(1), t(0)]), "85cdc07c");
    }

    #[test]
    fn names_beyond_the_basic_plane_sort_by_code_unit() {
        // U+FF5E is above the surrogates that begin U+1F600, though its code point is lower.
        assert_eq!(compare_utf16("\u{1f600}", "\u{ff5e}"), Ordering::Less);
        assert_eq!("\u{1f600}".cmp("\u{ff5e}"), Ordering::Greater);
    }

    #[test]
    fn joined_checksums_are_those_of_the_joined_bytes() {
        let bytes: Vec<u8> = (0..200_000_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for (end, at) in [
            (0, 0),
            (1, 0),
            (1, 1),
            (9, 6),
            (4097, 4096),
            (70_000, 6),
            (200_000, 6),
            (200_000, 131_073),
        ] {
            let (first, second) = bytes[..end].split_at(at);
            let joined = crc32c_joined(crc32c(first), crc32c(second), second.len());
            assert_eq!(joined, crc32c(&bytes[..end]), "{at} of {end}");
        }
    }

    #[test]
    fn bundles_hash_as_in_the_reference() {
        assert_eq!(bundle_hash("persistent://public/default/a"), 0xefe1_3dc2);
        assert_eq!(
            bundle_hash("persistent://public/default/t-partition-0"),
            0x3da5_1034
        );
        assert_eq!(bundle_hash("non-persistent://public/default/a"), 0xa4ca_7ba2);
    }
}
