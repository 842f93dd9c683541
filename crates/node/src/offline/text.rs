//! Numbers and tables for people.

use std::fmt::Write as _;

/// Bytes in the unit that leaves few digits.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = "B";
    while value >= 1024.0
        && let Some(next) = units.next()
    {
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// A number with its noun, singular or plural.
pub(crate) fn count(number: u64, one: &str) -> String {
    let ending = match (number, one.strip_suffix('y')) {
        (1, _) => one.to_owned(),
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) => format!("{one}s"),
    };
    format!("{number} {ending}")
}

/// Rows below each other, columns as wide as their widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Bytes as a person looks at them: offset, hexadecimal, and what of it is text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, part) in bytes.chunks(16).enumerate() {
        let digits: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| {
            if (32..127).contains(byte) {
                char::from(*byte)
            } else {
                '.'
            }
        };
        let plain: String = part.iter().map(shown).collect();
        let _ = writeln!(text, "    {:06x}  {:47}  {plain}", line * 16, digits.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 40), "5.0 TiB");
        assert_eq!(count(1, "entry"), "1 entry");
        assert_eq!(count(2, "entry"), "2 entries");
        assert_eq!(count(0, "ledger"), "0 ledgers");
        assert_eq!(hex(b"ab\x01"), format!("    000000  {:47}  ab.\n", "61 62 01"));
    }
}
