//! Makes Rust of etcd's protos.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["etcd/api/etcdserverpb/rpc.proto"], ["proto"])?;
    // Comments of protos are no documentation tests.
    tonic_prost_build::configure().disable_comments(["."]).compile_fds(files)?;
    Ok(())
}
