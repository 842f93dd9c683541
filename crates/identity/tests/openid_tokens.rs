//! Access tokens of an issuer on loopback: who gets in, when its keys are asked for, and what becomes of an issuer that is down.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use pharos_identity::sign::{self, Algorithm, Claims};
use pharos_identity::test_issuer::TestIssuer;
use pharos_identity::{
    Authentication, Chain, Credentials, Failure, Identity, OpenIdError, OpenIdOptions, OpenIdVerifier,
    Provider,
};

const AUDIENCE: &str = "pharos";

fn options(issuer: &TestIssuer) -> OpenIdOptions {
    OpenIdOptions {
        issuers: vec![issuer.url()],
        audiences: vec!["another".to_owned(), AUDIENCE.to_owned()],
        miss_refresh: Duration::from_millis(50),
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(5),
        require_https: false,
        ..OpenIdOptions::default()
    }
}

fn verifier(options: &OpenIdOptions) -> Authentication {
    let verifier = OpenIdVerifier::new(options).unwrap();
    Authentication::by(Chain {
        providers: vec![Provider::OpenId(Box::new(verifier))],
        ..Chain::default()
    })
}

/// Returns the identity of a token, or the reason why it is refused.
async fn verify(verifier: &Authentication, token: &str) -> Result<Identity, String> {
    match verifier.authenticate(Credentials::token(token)).await {
        Ok(identity) => Ok(identity),
        Err(Failure::Refused { reason, .. }) => Err(reason),
        Err(other) => panic!("{other}"),
    }
}

async fn role(verifier: &Authentication, token: &str) -> Result<String, String> {
    verify(verifier, token)
        .await
        .map(|identity| identity.role.to_string())
}

async fn refused(verifier: &Authentication, token: &str) -> String {
    role(verifier, token).await.unwrap_err()
}

const NO_KEYS: &str = "the keys of the token's issuer are not known: ";
const UNKNOWN_KEY: &str = "the token is signed with a key that its issuer does not have";
const ALGORITHM: &str = "the token's algorithm is none of the key's";

fn now() -> u64 {
    pharos_runtime::clock::wall_ms() / 1000
}

/// Waits until a condition holds; a test that waits in vain ends by its runner.
async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_token_of_an_allowed_issuer_gives_a_role() {
    let issuer = TestIssuer::start();
    let verifier = verifier(&options(&issuer));
    let expires = now() + 3600;
    let claims = issuer.claims("car", AUDIENCE).until(expires);
    let identity = verify(&verifier, &issuer.token(&claims)).await.unwrap();
    assert_eq!(&*identity.role, "car");
    assert_eq!(identity.expires_at_ms, Some((expires + 1) * 1000));
    let several = claims.clone().with("aud", json!(["x", AUDIENCE]));
    assert!(role(&verifier, &issuer.token(&several)).await.is_ok());
    for algorithm in [Algorithm::ES256, Algorithm::ES384, Algorithm::PS256] {
        issuer.add_key(&format!("{algorithm:?}"), algorithm);
        tokio::time::sleep(Duration::from_millis(60)).await;
        let token = issuer.token(&claims);
        assert_eq!(
            role(&verifier, &token).await.as_deref(),
            Ok("car"),
            "{algorithm:?}"
        );
    }
}

#[tokio::test]
async fn what_a_token_says_has_to_be_right() {
    let issuer = TestIssuer::start();
    let with_role = OpenIdOptions {
        role_claim: "roles".to_owned(),
        ..options(&issuer)
    };
    let verifier = verifier(&with_role);
    let good = issuer
        .claims("car", AUDIENCE)
        .with("roles", json!(["admin", "b"]));
    assert_eq!(
        role(&verifier, &issuer.token(&good)).await.as_deref(),
        Ok("admin")
    );
    let without = |name: &str| {
        let all = serde_json::to_value(issuer.claims("car", AUDIENCE).with("roles", "r").members()).unwrap();
        let kept = all
            .as_object()
            .unwrap()
            .iter()
            .filter(|(other, _)| *other != name);
        kept.fold(Claims::default(), |claims, (name, value)| {
            claims.with(name, value.clone())
        })
    };
    let cases = [
        (good.clone().until(now() - 10), "the token has expired"),
        (without("exp"), "the token has no claim exp"),
        (
            good.clone().with("nbf", now() + 100),
            "the token is not valid yet",
        ),
        (
            good.clone().with("aud", "other"),
            "the token is for another audience",
        ),
        (without("aud"), "the token is for another audience"),
        (
            good.clone().with("iss", "http://127.0.0.1:1"),
            "the token's issuer is none of those that are allowed",
        ),
        (
            good.clone().with("iss", format!("{}/", issuer.url())),
            "the token's issuer is none of those that are allowed",
        ),
        (
            good.clone().with("iss", json!([issuer.url()])),
            "the token's issuer is none of those that are allowed",
        ),
        (
            without("iss"),
            "the token's issuer is none of those that are allowed",
        ),
        (without("roles"), "the token has no role in its claim roles"),
    ];
    for (claims, reason) in cases {
        assert_eq!(
            refused(&verifier, &issuer.token(&claims)).await,
            reason,
            "{claims:?}"
        );
    }
}

#[tokio::test]
async fn a_forged_token_lets_no_one_in() {
    let (issuer, thief) = (TestIssuer::start(), TestIssuer::start());
    let verifier = verifier(&options(&issuer));
    let claims = issuer.claims("car", AUDIENCE);
    assert!(role(&verifier, &issuer.token(&claims)).await.is_ok());
    // Another key of the same name.
    assert_eq!(
        refused(&verifier, &thief.token(&claims)).await,
        "the token's signature is not that of the key"
    );
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let body = part(serde_json::to_value(claims.members()).unwrap());
    let none = format!("{}.{body}.", part(json!({ "alg": "none", "kid": "first" })));
    assert!(role(&verifier, &none).await.is_err());
    // The published key as the secret of an HMAC.
    let hmac = sign::with_secret(&issuer.public_key(), &claims).unwrap();
    assert_eq!(refused(&verifier, &hmac).await, ALGORITHM);
    let without_name = sign::key_pair(Algorithm::RS256).unwrap();
    let nameless = sign::with_private_key(&without_name.private, Algorithm::RS256, &claims).unwrap();
    assert_eq!(
        refused(&verifier, &nameless).await,
        "the token does not say which key it is signed with"
    );
    for odd in ["", "a", "a.b.c", "....", &"x".repeat(20_000)] {
        assert!(role(&verifier, odd).await.is_err());
    }
}

#[tokio::test]
async fn a_secret_or_a_key_for_other_things_is_never_taken() {
    let issuer = TestIssuer::start();
    let secret = [9; 32];
    let text = URL_SAFE_NO_PAD.encode(secret);
    issuer.publish(json!({ "kty": "oct", "kid": "secret", "k": text }));
    issuer.publish(json!({ "kty": "odd", "kid": "odd" }));
    issuer.publish(json!("no key"));
    let verifier = verifier(&options(&issuer));
    let claims = issuer.claims("car", AUDIENCE);
    assert!(role(&verifier, &issuer.token(&claims)).await.is_ok());
    let hmac = sign::with_secret(&secret, &claims).unwrap();
    assert_eq!(refused(&verifier, &hmac).await, ALGORITHM);
}

#[tokio::test]
async fn a_new_key_is_asked_for_once_and_an_old_one_goes() {
    let issuer = TestIssuer::start();
    let slow = OpenIdOptions {
        miss_refresh: Duration::from_secs(600),
        ..options(&issuer)
    };
    let (quick, slow) = (verifier(&options(&issuer)), verifier(&slow));
    let claims = issuer.claims("car", AUDIENCE);
    let old = issuer.token(&claims);
    assert!(role(&quick, &old).await.is_ok() && role(&slow, &old).await.is_ok());
    let asked = issuer.keys_asked();
    issuer.add_key("second", Algorithm::ES256);
    issuer.retire_keys();
    let new = issuer.token(&claims);
    // Asked a moment ago: not again yet.
    for _ in 0..20 {
        assert_eq!(refused(&slow, &new).await, UNKNOWN_KEY);
    }
    assert_eq!(issuer.keys_asked(), asked);
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (first, second) = tokio::join!(role(&quick, &new), role(&quick, &new));
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert_eq!(issuer.keys_asked(), asked + 1);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(refused(&quick, &old).await, UNKNOWN_KEY);
}

#[tokio::test]
async fn known_keys_outlive_an_issuer_that_is_down_but_not_for_ever() {
    let issuer = TestIssuer::start();
    let short = OpenIdOptions {
        refresh_after: Duration::from_millis(100),
        expire_after: Duration::from_millis(1500),
        ..options(&issuer)
    };
    let (verifier, short) = (verifier(&options(&issuer)), verifier(&short));
    let token = issuer.token(&issuer.claims("car", AUDIENCE));
    assert!(role(&verifier, &token).await.is_ok() && role(&short, &token).await.is_ok());
    let asked = issuer.keys_asked();
    until(|| issuer.keys_asked() > asked + 2).await;
    issuer.set_down(true);
    assert!(role(&verifier, &token).await.is_ok());
    assert!(role(&short, &token).await.is_ok(), "it has not expired yet");
    tokio::time::sleep(Duration::from_millis(1600)).await;
    let reason = refused(&short, &token).await;
    assert!(reason.starts_with(NO_KEYS), "{reason}");
    assert!(role(&verifier, &token).await.is_ok());
    issuer.set_down(false);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert!(role(&short, &token).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_answers_wrongly_is_not_believed() {
    let issuer = TestIssuer::start();
    let token = issuer.token(&issuer.claims("car", AUDIENCE));
    for document in [
        b"{".to_vec(),
        b"[]".to_vec(),
        vec![b' '; 1 << 20],
        br#"{"keys":1}"#.to_vec(),
    ] {
        issuer.answer_instead(Some(document));
        let reason = refused(&verifier(&options(&issuer)), &token).await;
        assert!(reason.starts_with(NO_KEYS), "{reason}");
    }
    issuer.answer_instead(None);
    assert!(role(&verifier(&options(&issuer)), &token).await.is_ok());
    issuer.call_itself("https://accounts.example.com");
    let reason = refused(&verifier(&options(&issuer)), &token).await;
    assert!(reason.starts_with(NO_KEYS), "{reason}");
    let strict = OpenIdOptions {
        require_https: true,
        ..options(&issuer)
    };
    assert!(matches!(
        OpenIdVerifier::new(&strict),
        Err(OpenIdError::Issuer(_))
    ));
    let dir = tempfile::tempdir().unwrap();
    let (absent, empty) = (dir.path().join("absent.pem"), dir.path().join("empty.pem"));
    std::fs::write(&empty, "no certificate").unwrap();
    for file in [absent, empty] {
        let untrusting = OpenIdOptions {
            trust_certs_file: Some(file),
            ..options(&issuer)
        };
        assert!(matches!(
            OpenIdVerifier::new(&untrusting),
            Err(OpenIdError::Trust(_))
        ));
    }
}

#[tokio::test]
async fn only_so_many_issuers_keep_their_keys() {
    let issuers = [TestIssuer::start(), TestIssuer::start()];
    let verifier = verifier(&OpenIdOptions {
        issuers: issuers.iter().map(TestIssuer::url).collect(),
        cache_size: 1,
        miss_refresh: Duration::from_secs(600),
        ..options(&issuers[0])
    });
    let tokens: Vec<_> = issuers
        .iter()
        .map(|issuer| issuer.token(&issuer.claims("car", AUDIENCE)))
        .collect();
    for _ in 0..2 {
        for token in &tokens {
            assert_eq!(role(&verifier, token).await.as_deref(), Ok("car"));
            assert!(role(&verifier, token).await.is_ok());
        }
    }
    assert_eq!(issuers.each_ref().map(TestIssuer::keys_asked), [2, 2]);
}
