//! The parameters of a path. One that is not known here is refused: what is asked for and not done would be found out late.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use hyper::StatusCode;
use pharos_admin_api::paths::decode_query;

use crate::UpgradeRefusal;

/// Parameters that Pulsar has and this broker has not.
const NOT_SERVED: [&str; 4] = [
    "encryptionKeys",
    "subscriptionRolePrefix",
    "topics",
    "topicsPattern",
];

/// Members of a query that are not read yet.
#[derive(Debug)]
pub(crate) struct Query {
    members: BTreeMap<String, String>,
}

impl Query {
    /// # Errors
    /// 400: it is no query, or says something twice.
    pub(crate) fn parse(text: &str) -> Result<Self, UpgradeRefusal> {
        let mut members = BTreeMap::new();
        for member in text.split('&').filter(|member| !member.is_empty()) {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            let (Some(name), Some(value)) = (decode_query(name), decode_query(value)) else {
                return Err(UpgradeRefusal::bad_request("the query is not UTF-8"));
            };
            if members.contains_key(&name) {
                return Err(UpgradeRefusal::bad_request(format!(
                    "the parameter {name} is there twice"
                )));
            }
            members.insert(name, value);
        }
        Ok(Self { members })
    }

    /// A parameter as it stands there.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.members.remove(name)
    }

    /// A number, `true` or `false`.
    ///
    /// # Errors
    /// 400: it is none.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, UpgradeRefusal>
    where
        T::Err: Display,
    {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let value = text.parse();
        let value =
            value.map_err(|error| UpgradeRefusal::bad_request(format!("the parameter {name}: {error}")))?;
        Ok(Some(value))
    }

    /// Milliseconds.
    ///
    /// # Errors
    /// 400: it is no number.
    pub(crate) fn millis(&mut self, name: &str) -> Result<Option<Duration>, UpgradeRefusal> {
        Ok(self.value(name)?.map(Duration::from_millis))
    }

    /// Takes one of these words, in any case.
    ///
    /// # Errors
    /// 400: the value is not one of them.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, UpgradeRefusal> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text));
        let known = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let (_, value) = found
            .ok_or_else(|| UpgradeRefusal::bad_request(format!("the parameter {name} may be {}", known())))?;
        Ok(Some(*value))
    }

    /// Nothing must be left.
    ///
    /// # Errors
    /// 501: a parameter that Pulsar has and this broker has not; 400: any other one.
    pub(crate) fn finish(self) -> Result<(), UpgradeRefusal> {
        let Some(name) = self.members.keys().next() else {
            return Ok(());
        };
        if NOT_SERVED.contains(&name.as_str()) {
            let reason = format!("the parameter {name} is not served");
            return Err(UpgradeRefusal::new(StatusCode::NOT_IMPLEMENTED, reason));
        }
        // What was meant to be a token under another name must not come back, nor into a log.
        let shown: String = name.chars().take(64).collect();
        Err(UpgradeRefusal::bad_request(format!(
            "there is no parameter {shown} here"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_used_up_or_refused() {
        let mut query = Query::parse(
            "receiverQueueSize=5&pullMode=true&consumerName=a%20b+c&subscriptionType=key_shared",
        )
        .unwrap();
        assert_eq!(query.value::<u32>("receiverQueueSize").unwrap(), Some(5));
        assert_eq!(query.value::<bool>("pullMode").unwrap(), Some(true));
        assert_eq!(query.text("consumerName").unwrap(), "a b c");
        assert_eq!(
            query
                .choice("subscriptionType", &[("Shared", 1), ("Key_Shared", 2)])
                .unwrap(),
            Some(2)
        );
        assert_eq!(query.finish(), Ok(()));
        let status = |text: &str| {
            Query::parse(text)
                .and_then(Query::finish)
                .unwrap_err()
                .status
                .as_u16()
        };
        assert_eq!(status("encryptionKeys=x"), 501);
        assert_eq!(status("hello=x"), 400);
        assert_eq!(status("a=1&a=2"), 400);
        assert_eq!(status("a=%ff"), 400);
        let mut query = Query::parse("a=x").unwrap();
        assert_eq!(
            query.value::<u32>("a").unwrap_err().status,
            StatusCode::BAD_REQUEST
        );
    }
}
