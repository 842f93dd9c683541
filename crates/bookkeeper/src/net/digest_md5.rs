//! SASL's mechanism DIGEST-MD5 (RFC 2831), the client's half, without I/O: what bookies speak beside Kerberos.
//!
//! Neither side sends the password, and each shows the other that it knows it. MD5 is no strong hash, and nothing after the login is
//! protected by it: where the network is not trusted, TLS is below it.

use std::collections::HashMap;
use std::fmt::Write as _;

use md5::{Digest, Md5};
use pharos_types::Login;

/// A login that is going on: what the bookie has to answer last.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DigestResponse {
    /// To send.
    pub(super) text: String,
    /// Response that proves the bookie's knowledge of the password.
    expected: String,
}

/// Failure of a login.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DigestError {
    /// The bookie says what the mechanism does not know.
    #[error("the challenge of DIGEST-MD5 cannot be read")]
    Malformed,
    /// The bookie requires an unsupported option.
    #[error("the challenge of DIGEST-MD5 has no {0}")]
    Unsupported(&'static str),
    /// The bookie accepted the login without proving that it knows the password.
    #[error("the bookie does not show that it knows the password")]
    NotShown,
}

/// Answers a challenge for the service `uri`, such as `bookkeeper/bookkeeper`. `nonce`: of ours, random.
pub(super) fn respond(
    challenge: &[u8],
    login: &Login,
    uri: &str,
    nonce: &str,
) -> Result<DigestResponse, DigestError> {
    let challenge = parse(challenge)?;
    let given = |name: &str| challenge.get(name).map(String::as_str);
    let offers = |name: &str, wanted: &str, missing: &'static str| match given(name) {
        Some(offered) if !offered.split(',').any(|offer| offer.trim() == wanted) => {
            Err(DigestError::Unsupported(missing))
        }
        _ => Ok(()),
    };
    if given("algorithm") != Some("md5-sess") {
        return Err(DigestError::Unsupported("algorithm md5-sess"));
    }
    offers("qop", "auth", "quality auth")?;
    let theirs = given("nonce").ok_or(DigestError::Unsupported("nonce"))?;
    let realm = given("realm").unwrap_or_default();
    let secret = Md5::digest(format!("{}:{realm}:{}", login.user, login.password));
    let session = Md5::new()
        .chain_update(secret)
        .chain_update(format!(":{theirs}:{nonce}"))
        .finalize();
    let session = hex(&session);
    let digest = |asked: &str| {
        let asked = hex(&Md5::digest(format!("{asked}:{uri}")));
        hex(&Md5::digest(format!(
            "{session}:{theirs}:00000001:{nonce}:auth:{asked}"
        )))
    };
    let mut text = String::new();
    if given("charset").is_some() {
        text.push_str("charset=utf-8,");
    }
    let _ = write!(
        text,
        "username={},realm={},nonce={},nc=00000001,cnonce=\"{nonce}\",digest-uri=\"{uri}\",response={},qop=auth",
        quoted(&login.user),
        quoted(realm),
        quoted(theirs),
        digest("AUTHENTICATE"),
    );
    Ok(DigestResponse {
        text,
        expected: digest(""),
    })
}

impl DigestResponse {
    /// Looks at the bookie's last word.
    pub(super) fn check(&self, last: &[u8]) -> Result<(), DigestError> {
        let last = parse(last)?;
        let shown = last.get("rspauth");
        let is_right = shown.is_some_and(|shown| is_same(shown.as_bytes(), self.expected.as_bytes()));
        if is_right {
            Ok(())
        } else {
            Err(DigestError::NotShown)
        }
    }
}

/// In a time that does not tell how much of it is right.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// `name=value,name="quoted value"`. Of a name that comes twice the first counts.
fn parse(bytes: &[u8]) -> Result<HashMap<String, String>, DigestError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DigestError::Malformed)?;
    let mut fields = HashMap::new();
    let mut rest = text.trim_start_matches([',', ' ', '\t']);
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(DigestError::Malformed)?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = after.find(',').unwrap_or(after.len());
                let (value, after) = after.split_at(end);
                (value.trim().to_owned(), after)
            }
        };
        fields.entry(name.trim().to_ascii_lowercase()).or_insert(value);
        rest = after.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(',') {
            return Err(DigestError::Malformed);
        }
        rest = rest.trim_start_matches([',', ' ', '\t']);
    }
    Ok(fields)
}

/// Returns the text before the closing quote, and the rest after it.
fn unquote(text: &str) -> Result<(String, &str), DigestError> {
    let mut value = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Ok((value, letters.as_str())),
            '\\' => value.push(letters.next().ok_or(DigestError::Malformed)?),
            letter => value.push(letter),
        }
    }
    Err(DigestError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chris() -> Login {
        Login {
            user: "chris".to_owned(),
            password: "secret".to_owned(),
        }
    }

    /// The example of RFC 2831, section 4.
    #[test]
    fn the_example_of_the_rfc() {
        let challenge = b"realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",qop=\"auth\",algorithm=md5-sess,charset=utf-8";
        let response = respond(challenge, &chris(), "imap/elwood.innosoft.com", "OA6MHXh6VqTrRk").unwrap();
        assert_eq!(
            response.text,
            "charset=utf-8,username=\"chris\",realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",nc=00000001,\
             cnonce=\"OA6MHXh6VqTrRk\",digest-uri=\"imap/elwood.innosoft.com\",response=d388dad90d4bbd760a152321f2143af7,qop=auth"
        );
        assert_eq!(
            response.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd"),
            Ok(())
        );
        assert_eq!(
            response.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffe"),
            Err(DigestError::NotShown)
        );
        assert_eq!(response.check(b""), Err(DigestError::NotShown));
    }

    #[test]
    fn quotes_are_taken_away_and_put_back() {
        let fields = parse(br#" realm="a \"b\\", nonce = x ,, qop="auth,auth-conf""#).unwrap();
        assert_eq!(fields["realm"], "a \"b\\");
        assert_eq!(fields["nonce"], "x");
        assert_eq!(fields["qop"], "auth,auth-conf");
        assert_eq!(quoted("a \"b\\"), r#""a \"b\\""#);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let refused = |challenge: &str| respond(challenge.as_bytes(), &chris(), "a/b", "n").unwrap_err();
        for challenge in ["nonce", "nonce=\"x", "nonce=\"x\\", "nonce=\"x\"y"] {
            assert_eq!(refused(challenge), DigestError::Malformed, "{challenge}");
        }
        for challenge in [
            "",
            "algorithm=md5-sess",
            "nonce=x",
            "nonce=x,algorithm=md5-sess,qop=\"auth-conf\"",
        ] {
            assert!(
                matches!(refused(challenge), DigestError::Unsupported(_)),
                "{challenge}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_bookie_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = respond(&bytes, &chris(), "a/b", "n");
        }

        #[test]
        fn no_text_of_a_bookie_panics(text in "[a-z=\",\\\\ é]{0,40}") {
            let _ = respond(text.as_bytes(), &chris(), "a/b", "n");
        }
    }
}
