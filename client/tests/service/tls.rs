//! A server that speaks TLS only.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokenbucket_client::{Client, Source};
use tokenbucket_testkit::{Server, StartError};

use crate::*;

struct Certificates {
    root: String,
    server: (String, String),
    client: (String, String),
}

fn certificates() -> Certificates {
    let named = |params: &mut CertificateParams, name: &str| {
        params.distinguished_name.push(DnType::CommonName, name);
    };
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    named(&mut params, "a root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
        named(&mut params, name);
        let certificate = params.signed_by(&key, &root).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    Certificates {
        root: root.pem(),
        server: signed("localhost"),
        client: signed("client"),
    }
}

fn start(certificates: &Certificates, port: u16) -> Result<Server, StartError> {
    let folder = tempfile::tempdir().unwrap().keep();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    with_module()
        .config("tls-port", port.to_string())
        .config("tls-cert-file", file("cert.pem", &certificates.server.0))
        .config("tls-key-file", file("key.pem", &certificates.server.1))
        .config("tls-ca-cert-file", file("root.pem", &certificates.root))
        .try_start()
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate() {
    let certificates = certificates();
    let port = free_port();
    let server = match start(&certificates, port) {
        Ok(server) => server,
        Err(error)
            if ["Bad directive", "Failed finding TLS support"]
                .iter()
                .any(|why| error.log().contains(why)) =>
        {
            println!("skipped: this server is built without TLS");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let address = format!("rediss://localhost:{port}/");
    let builder = || Client::builder(&address).unwrap().deadline(PATIENCE);

    let client = builder()
        .root_certificate(certificates.root.clone())
        .client_certificate(certificates.client.0.clone(), certificates.client.1.clone())
        .build()
        .unwrap();
    client.check().await.unwrap();
    let limiter = client.limiter(limit(10.0, 1.0)).named("api");
    let decision = limiter.acquire("user:42", 1).await.unwrap();
    assert_eq!(decision.source(), Source::Redis);
    assert_eq!(server.raw().text(&["DBSIZE"]).integer(), 1);

    // It trusts nobody whom it was not told to trust; the server neither.
    let stranger = builder().build().unwrap();
    assert!(stranger.check().await.is_err());
    let anonymous = builder()
        .root_certificate(certificates.root)
        .build()
        .unwrap();
    assert!(anonymous.check().await.is_err());
    assert!(Client::builder(&address)
        .unwrap()
        .root_certificate("nonsense")
        .build()
        .is_err());
}
