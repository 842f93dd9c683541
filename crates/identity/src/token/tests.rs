use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;

use super::*;
use crate::sign::Claims;

const SECRET: [u8; 32] = [7; 32];

fn options() -> TokenOptions {
    TokenOptions {
        secret_key: Some(SECRET.to_vec()),
        ..TokenOptions::default()
    }
}

fn verifier(options: &TokenOptions) -> TokenVerifier {
    TokenVerifier::new(options).unwrap()
}

fn signed(claims: &Claims) -> String {
    sign::with_secret(&SECRET, claims).unwrap()
}

/// The token that these claims make with the options.
fn check(options: &TokenOptions, claims: &Claims) -> Result<Identity, Refused> {
    verifier(options).verify(signed(claims).as_bytes())
}

fn now() -> u64 {
    jsonwebtoken::get_current_timestamp()
}

fn by_hand(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!(
        "{}.{}.{}",
        part(header),
        part(claims),
        URL_SAFE_NO_PAD.encode(signature)
    )
}

#[test]
fn the_role_is_in_the_claim_that_settings_name() {
    let role = |options: &TokenOptions, claims: &Claims| check(options, claims).map(|it| it.role.to_string());
    assert_eq!(role(&options(), &Claims::of("car")), Ok("car".to_owned()));
    let other = TokenOptions {
        role_claim: "role".to_owned(),
        ..options()
    };
    let both = Claims::of("car").with("role", "admin");
    assert_eq!(role(&other, &both), Ok("admin".to_owned()));
    assert_eq!(
        role(&other, &Claims::of("car").with("role", json!(["a", "b"]))),
        Ok("a".to_owned())
    );
    for odd in [
        json!(""),
        json!([]),
        json!([1]),
        json!({"a": 1}),
        json!(7),
        json!(null),
    ] {
        let refused = check(&other, &Claims::of("car").with("role", odd.clone()));
        assert_eq!(refused, Err(Refused::NoRole("role".to_owned())), "{odd}");
    }
    assert!(check(&options(), &Claims::default()).is_err());
}

#[test]
fn times_are_looked_at_and_never_skipped() {
    let at = |name: &str, value: Value| check(&options(), &Claims::of("car").with(name, value));
    let later = now() + 100;
    assert_eq!(
        at("exp", json!(later)).unwrap().expires_at_ms,
        Some((later + 1) * 1000)
    );
    assert_eq!(at("iat", json!(now())).unwrap().expires_at_ms, None);
    assert_eq!(at("exp", json!(now() - 2)), Err(Refused::Expired));
    assert_eq!(at("exp", json!(0)), Err(Refused::Expired));
    assert_eq!(at("nbf", json!(later)), Err(Refused::NotYet));
    for odd in [json!("9999999999"), json!(-1), json!(true)] {
        assert_eq!(
            at("exp", odd.clone()),
            Err(Refused::Claim("exp".to_owned())),
            "{odd}"
        );
        assert_eq!(
            at("nbf", odd.clone()),
            Err(Refused::Claim("nbf".to_owned())),
            "{odd}"
        );
    }
    assert!(at("exp", json!([later])).is_err() && at("exp", json!({"x": later})).is_err());
    let skewed = TokenOptions {
        clock_skew_s: 60,
        ..options()
    };
    assert!(check(&skewed, &Claims::of("car").until(now() - 10)).is_ok());
    assert!(check(&skewed, &Claims::of("car").until(now() - 100)).is_err());
}

#[test]
fn the_audience_is_one_of_the_tokens() {
    let wants = TokenOptions {
        audience_claim: "aud".to_owned(),
        audience: "pharos".to_owned(),
        ..options()
    };
    let with = |audience: Value| check(&wants, &Claims::of("car").with("aud", audience));
    assert!(with(json!("pharos")).is_ok() && with(json!(["x", "pharos"])).is_ok());
    for wrong in [
        json!("other"),
        json!(["x"]),
        json!([]),
        json!(null),
        json!({"pharos": 1}),
        json!("Pharos"),
    ] {
        assert_eq!(with(wrong.clone()), Err(Refused::Audience), "{wrong}");
    }
    assert_eq!(check(&wants, &Claims::of("car")), Err(Refused::Audience));
    // Who asks for none takes any.
    assert!(check(&options(), &Claims::of("car").with("aud", "other")).is_ok());
    for half in [("aud", ""), ("", "pharos")] {
        let options = TokenOptions {
            audience_claim: half.0.to_owned(),
            audience: half.1.to_owned(),
            ..options()
        };
        assert_eq!(TokenVerifier::new(&options).unwrap_err(), TokenError::Audience);
    }
}

#[test]
fn forged_tokens_are_refused() {
    let tokens = verifier(&options());
    let claims = json!({"sub": "car"});
    for alg in ["none", "None", "NONE", "nOnE", "", "HS1", "EdDSA"] {
        for signature in [&b""[..], b"x"] {
            let token = by_hand(&json!({"alg": alg}), &claims, signature);
            assert!(tokens.verify(token.as_bytes()).is_err(), "{alg}");
        }
    }
    let good = signed(&Claims::of("car"));
    assert!(tokens.verify(good.as_bytes()).is_ok());
    // Other claims under the same signature, no signature, another key.
    let parts: Vec<&str> = good.split('.').collect();
    let admin = URL_SAFE_NO_PAD.encode(r#"{"sub":"admin"}"#);
    for forged in [
        format!("{}.{admin}.{}", parts[0], parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}.x"),
        sign::with_secret(&[8; 32], &Claims::of("car")).unwrap(),
        "a.b.c".to_owned(),
        "..".to_owned(),
        String::new(),
        "x".repeat(TOKEN_BYTES_MAX + 1),
    ] {
        assert!(tokens.verify(forged.as_bytes()).is_err(), "{forged}");
    }
    assert!(tokens.verify(&[0xff, b'.', 0xfe, b'.', 0]).is_err());
}

/// The public key is public: a token that takes it for an HMAC secret must not get in.
#[test]
fn an_algorithm_is_one_of_the_keys_kind() {
    for algorithm in [Algorithm::RS256, Algorithm::ES256, Algorithm::ES384] {
        let pair = sign::key_pair(algorithm).unwrap();
        let options = TokenOptions {
            public_key: Some(pair.public.clone()),
            public_algorithm: format!("{algorithm:?}"),
            ..TokenOptions::default()
        };
        let tokens = verifier(&options);
        let good = sign::with_private_key(&pair.private, algorithm, &Claims::of("car")).unwrap();
        assert_eq!(
            &*tokens.verify(good.as_bytes()).unwrap().role,
            "car",
            "{algorithm:?}"
        );
        let pem = to_pem(&pair.public, "PUBLIC KEY");
        for secret in [&pair.public, &pem] {
            let key = EncodingKey::from_secret(secret);
            for hmac in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let forged = encode(&Header::new(hmac), &json!({"sub": "car"}), &key).unwrap();
                assert_eq!(
                    tokens.verify(forged.as_bytes()),
                    Err(Refused::Algorithm),
                    "{algorithm:?}"
                );
            }
        }
        let stranger = sign::key_pair(algorithm).unwrap();
        let forged = sign::with_private_key(&stranger.private, algorithm, &Claims::of("car")).unwrap();
        assert_eq!(
            tokens.verify(forged.as_bytes()),
            Err(Refused::Signature),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_key_is_of_the_kind_that_settings_say() {
    let pair = sign::key_pair(Algorithm::ES256).unwrap();
    let with = |algorithm: &str| {
        TokenVerifier::new(&TokenOptions {
            public_key: Some(pair.public.clone()),
            public_algorithm: algorithm.to_owned(),
            ..TokenOptions::default()
        })
        .map(drop)
    };
    assert_eq!(with("ES256"), Ok(()));
    assert!(matches!(with("RS256"), Err(TokenError::PublicKey(_))));
    assert!(matches!(with(""), Err(TokenError::PublicKey(_))));
    for odd in ["ES512", "HS256", "none", "EdDSA"] {
        assert!(matches!(with(odd), Err(TokenError::Algorithm(_))), "{odd}");
    }
    let weak = TokenOptions {
        secret_key: Some(vec![1; 31]),
        ..TokenOptions::default()
    };
    assert_eq!(TokenVerifier::new(&weak).unwrap_err(), TokenError::WeakSecret(31));
    assert_eq!(
        TokenVerifier::new(&TokenOptions::default()).unwrap_err(),
        TokenError::NoKey
    );
}

#[test]
fn a_secret_takes_no_more_bits_than_it_has() {
    let long = verifier(&TokenOptions {
        secret_key: Some(vec![7; 64]),
        ..TokenOptions::default()
    });
    let token = |bytes: usize, algorithm| {
        let key = EncodingKey::from_secret(&vec![7; bytes]);
        encode(&Header::new(algorithm), &json!({"sub": "car"}), &key).unwrap()
    };
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        assert!(
            long.verify(token(64, algorithm).as_bytes()).is_ok(),
            "{algorithm:?}"
        );
    }
    let short = verifier(&options());
    assert!(short.verify(token(32, Algorithm::HS256).as_bytes()).is_ok());
    assert_eq!(
        short.verify(token(32, Algorithm::HS512).as_bytes()),
        Err(Refused::Algorithm)
    );
}
