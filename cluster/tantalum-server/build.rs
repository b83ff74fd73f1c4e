//! Makes Rust of etcd's protos.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let services = ["etcdserverpb/rpc.proto", "v3lockpb/v3lock.proto", "v3electionpb/v3election.proto"];
    let files = protox::compile(services.map(|service| format!("etcd/api/{service}")), ["proto"])?;
    // Comments of protos are no documentation tests.
    tonic_prost_build::configure().disable_comments(["."]).compile_fds(files)?;
    Ok(())
}
