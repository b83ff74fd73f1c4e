//! Makes Rust of etcd's protos, and of that between the members.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let services = ["etcdserverpb/rpc.proto", "v3lockpb/v3lock.proto", "v3electionpb/v3election.proto"];
    let services = services.map(|service| format!("etcd/api/{service}"));
    let files = protox::compile(services.iter().map(String::as_str).chain(["peer/peer.proto"]), ["proto"])?;
    // Comments of protos are no documentation tests.
    tonic_prost_build::configure().disable_comments(["."]).compile_fds(files)?;
    Ok(())
}
