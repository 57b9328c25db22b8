//! Ports of no known protocol: bytes are forwarded unchanged, in both directions.

use crate::{
    servers::{echo, serve},
    world::{End, PUBLIC, World, within},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn bytes_are_forwarded_both_ways_and_counted() {
    within(async {
        let world = World::with_api(&["api.test:5432"]).await;
        echo(PUBLIC, 5432);
        let mut client = world.echoed("api.test", 5432, "hello").await;
        client.shut_down().await;
        assert_eq!(client.read_to_end().await, (Vec::new(), End::Closed));
        let report = world.report();
        let reached = &report.reached[0];
        assert_eq!(
            (
                reached.end.name.as_str(),
                reached.end.port,
                reached.end.address.to_string().as_str()
            ),
            ("api.test", 5432, PUBLIC)
        );
        assert_eq!(
            (reached.connections, reached.bytes_out, reached.bytes_in),
            (1, 5, 5)
        );
        assert!(report.denials.is_empty(), "{report:?}");
    });
}

#[test]
fn server_may_speak_first() {
    within(async {
        let world = World::with(&["mail.test:25"]).await;
        world.resolves("mail.test", &[PUBLIC]);
        serve(PUBLIC, 25, |mut stream| async move {
            stream.write_all(b"220 hello\r\n").await.expect("sent");
            let mut line = [0; 6];
            stream.read_exact(&mut line).await.expect("received");
            stream.write_all(&line).await.expect("sent");
        });
        let mut client = world.connect("mail.test", 25).await;
        assert_eq!(client.read_until("\n").await, "220 hello\r\n");
        client.send("EHLO\r\n").await;
        assert_eq!(client.read_text().await, "EHLO\r\n");
    });
}
