//! One line of the audit log.

use pharos_auth::{AuditEvent, Principal};
use pharos_runtime::clock;
use serde::Serialize;

/// Maximum length of a peer-chosen text, in characters.
const TEXT_CHARS_MAX: usize = 512;

/// A decision, as it is written. Fields that do not apply are not there.
#[derive(Serialize)]
struct Line<'a> {
    /// UTC.
    time: String,
    /// Role of the peer; absent if it proved none.
    role: Option<String>,
    /// Original principal, if the peer is a proxy.
    original_principal: Option<String>,
    /// Remote address.
    address: &'a str,
    /// By which door.
    door: &'static str,
    /// `authenticate`, or one of the actions of the permission table.
    action: &'static str,
    /// Resource of the action; absent for the cluster or if there is none.
    #[serde(flatten)]
    resource: Named,
    allowed: bool,
    /// Reason of the refusal.
    reason: Option<String>,
}

/// The narrowest name is the resource; the others are where it is.
#[derive(Default, Serialize)]
struct Named {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<String>,
}

/// The line of a decision, with its end.
pub(crate) fn line(who: &Principal, event: AuditEvent<'_>, refused: Option<&str>) -> String {
    let cut = |text: &str| text.chars().take(TEXT_CHARS_MAX).collect::<String>();
    let record = Line {
        time: utc(clock::wall_ms()),
        role: who.role().map(|role| cut(role)),
        original_principal: who.original().map(|name| cut(name)),
        address: who.address(),
        door: who.door().name(),
        action: match event {
            AuditEvent::Authenticate => "authenticate",
            AuditEvent::Do(action, _) => action.name(),
        },
        resource: named(event),
        allowed: refused.is_none(),
        reason: refused.map(cut),
    };
    ended(serde_json::to_string(&record).unwrap_or_default())
}

fn named(event: AuditEvent<'_>) -> Named {
    let AuditEvent::Do(_, resource) = event else {
        return Named::default();
    };
    let cut = |text: &str| text.chars().take(TEXT_CHARS_MAX).collect::<String>();
    Named {
        tenant: resource.tenant().map(cut),
        namespace: resource.namespace().map(|it| cut(it.as_str())),
        topic: resource.topic().map(|it| cut(&it.to_string())),
        subscription: resource.subscription().map(|it| cut(it.as_str())),
        consumer: resource.consumer().map(cut),
    }
}

/// The line that says how many are missing before it.
pub(crate) fn gap(count: u64) -> String {
    let record =
        serde_json::json!({ "time": utc(clock::wall_ms()), "action": "records-lost", "count": count });
    ended(record.to_string())
}

fn ended(mut line: String) -> String {
    line.push('\n');
    line
}

/// Milliseconds since 1970 as RFC 3339 has a time in UTC.
fn utc(ms: u64) -> String {
    let (days, ms_of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (seconds, ms) = (ms_of_day / 1000, ms_of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of the month, so many days after the first of 1970.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_251_200_007, "2024-03-01T00:00:00.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
