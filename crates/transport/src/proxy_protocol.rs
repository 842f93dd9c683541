//! The PROXY protocol: a load balancer says, before the first byte of a connection, from where it really comes.
//!
//! Both versions of it, as HAProxy specifies them. The header is read to its last byte and not beyond: what follows belongs
//! to TLS or to the protocol. What it says is believed, so only the balancer may reach such a port.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

/// The header of version 2 begins with this.
const V2_PREFIX: &[u8] = ppp::v2::PROTOCOL_PREFIX;
/// Prefix of a version 1 header.
const V1_PREFIX: &[u8] = b"PROXY ";
/// The longest header of version 1.
const V1_BYTES_MAX: usize = 107;
/// The header of version 2 before what has a length of its own.
const V2_FIXED_BYTES: usize = 16;
/// The longest that is taken of version 2: addresses, and some kilobytes of what balancers like to add.
const V2_BYTES_MAX: usize = 4096;

/// PROXY header at the start of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Never present.
    #[default]
    Off,
    /// Optional, as with Pulsar. A client that bypasses the balancer can claim any address.
    Optional,
    /// Always present.
    Required,
}

/// Interpretation of the bytes so far.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The beginning of a header.
    Part,
    /// A header of so many bytes, and the address in it; `None` when it has none: the balancer speaks for itself.
    Header(usize, Option<SocketAddr>),
    /// Something else.
    Nothing,
}

/// Reads the header off a socket that nothing was read from. Returns the address that it says, if there is one.
///
/// # Errors
/// There is no header and must be one, or it is none. The stream is finished then.
pub(crate) async fn read(socket: &TcpStream, mode: ProxyProtocol) -> io::Result<Option<SocketAddr>> {
    let (mut header, mut peeked) = (Vec::new(), vec![0; V2_BYTES_MAX]);
    loop {
        let bytes = socket.peek(&mut peeked).await?;
        if bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "closed before a PROXY header",
            ));
        }
        let before = header.len();
        header.extend_from_slice(peeked.get(..bytes).unwrap_or_default());
        match look(&header) {
            Found::Nothing if before == 0 && mode == ProxyProtocol::Optional => return Ok(None),
            Found::Nothing => {
                let reason = "the connection does not begin with a PROXY header";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            // All of it is header, so it can be taken: the next look waits for what follows.
            Found::Part => take(socket, bytes)?,
            Found::Header(length, address) => {
                take(socket, length.saturating_sub(before))?;
                return Ok(address);
            }
        }
    }
}

/// Takes bytes off a socket that has them.
fn take(socket: &TcpStream, bytes: usize) -> io::Result<()> {
    let (mut taken, mut room) = (0, vec![0; bytes]);
    while taken < bytes {
        taken += socket.try_read(room.get_mut(taken..).unwrap_or_default())?;
    }
    Ok(())
}

fn look(bytes: &[u8]) -> Found {
    let begins_like = |prefix: &[u8]| {
        let common = bytes.len().min(prefix.len());
        bytes.get(..common) == prefix.get(..common)
    };
    if begins_like(V2_PREFIX) {
        look_for_v2(bytes)
    } else if begins_like(V1_PREFIX) {
        look_for_v1(bytes)
    } else {
        Found::Nothing
    }
}

fn look_for_v1(bytes: &[u8]) -> Found {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < V1_BYTES_MAX {
            Found::Part
        } else {
            Found::Nothing
        };
    };
    let length = end + 2;
    match ppp::v1::Header::try_from(bytes.get(..length).unwrap_or_default()) {
        Ok(header) => Found::Header(
            length,
            match header.addresses {
                ppp::v1::Addresses::Tcp4(at) => Some((at.source_address, at.source_port).into()),
                ppp::v1::Addresses::Tcp6(at) => Some((at.source_address, at.source_port).into()),
                ppp::v1::Addresses::Unknown => None,
            },
        ),
        Err(_) => Found::Nothing,
    }
}

fn look_for_v2(bytes: &[u8]) -> Found {
    let Some(&[high, low]) = bytes.get(V2_FIXED_BYTES - 2..V2_FIXED_BYTES) else {
        return Found::Part;
    };
    let length = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > V2_BYTES_MAX {
        return Found::Nothing;
    }
    let Some(header) = bytes.get(..length) else {
        return Found::Part;
    };
    match ppp::v2::Header::try_from(header) {
        Ok(header) => Found::Header(
            length,
            match (header.command, header.addresses) {
                (ppp::v2::Command::Proxy, ppp::v2::Addresses::IPv4(at)) => {
                    Some((at.source_address, at.source_port).into())
                }
                (ppp::v2::Command::Proxy, ppp::v2::Addresses::IPv6(at)) => {
                    Some((at.source_address, at.source_port).into())
                }
                _ => None,
            },
        ),
        Err(_) => Found::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = V2_PREFIX.to_vec();
        bytes.extend([0x20 | command, family]);
        bytes.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn headers_of_both_versions_say_where_a_connection_comes_from() {
        let v1 = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 6650\r\nrest";
        assert_eq!(
            look(v1),
            Found::Header(41, Some("192.0.2.7:4711".parse().unwrap()))
        );
        assert_eq!(look(b"PROXY UNKNOWN\r\n"), Found::Header(15, None));
        let addresses = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 0x19, 0xfa, 0x04, 0, 1, 9];
        let header = v2(1, 0x11, &addresses);
        let found = Found::Header(32, Some("192.0.2.7:4711".parse().unwrap()));
        assert_eq!(look(&[&header[..], b"rest"].concat()), found);
        assert_eq!(look(&v2(0, 0, &[])), Found::Header(16, None));
    }

    #[test]
    fn any_part_of_a_header_is_told_from_what_is_none() {
        for header in [&b"PROXY TCP6 ::1 ::1 1 2\r\n"[..], &v2(1, 0x11, &[1; 12])] {
            for end in 1..header.len() {
                assert_eq!(look(&header[..end]), Found::Part, "{end} bytes");
            }
            assert!(matches!(look(header), Found::Header(length, Some(_)) if length == header.len()));
        }
        let long = [&b"PROXY TCP4 "[..], &[b'1'; 100]].concat();
        let huge = [V2_PREFIX, &[0x21, 0x11, 0xff, 0xff]].concat();
        for garbage in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\0\0\0\x17",
            b"\x16\x03\x01",
            b"PROXY TCP4 x y\r\n",
            &long,
            &huge,
            &v2(1, 0x11, &[1; 4]),
        ] {
            assert_eq!(look(garbage), Found::Nothing);
        }
    }
}
