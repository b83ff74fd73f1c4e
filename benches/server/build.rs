//! Makes Rust of etcd's protos, those that `tantalum-server` has: for clients alone.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTOS: &str = "../../cluster/tantalum-server/proto";
    println!("cargo::rerun-if-changed={PROTOS}");
    let files = protox::compile(["etcd/api/etcdserverpb/rpc.proto"], [PROTOS])?;
    tonic_prost_build::configure().build_server(false).disable_comments(["."]).compile_fds(files)?;
    Ok(())
}
