// Package embedded is podrun's own containerd: a minimal one that runs in a detached re-exec of podrun,
// and the runc shim out of the same binary. A client asks for it with Ensure and holds the Lease for as
// long as it uses it; Serve is what the re-exec runs; Dispatch is the binary's other name, the shim.
//
// It does not own any container: that is its clients' business. It does not own runc, which must be on
// PATH. It pulls nothing and knows no Pod.
//
// # Life
//
// There is one daemon per run directory. A client that holds a Lease, or a task in any namespace, keeps it.
// When neither is there for Options.IdleGrace it ends by itself. Container records, snapshots and images do
// not keep it; they are there again when it next starts. What it does when told to end, or killed, leaves
// running containers alone: their shims live on, and the next daemon adopts them. A Lease is only a lock
// that the kernel releases with the process, so a client that is killed counts as one that has left. After
// a daemon's death its clients call Ensure again.
//
// # For clients
//
//   - Address: Lease.Address, the gRPC socket. Snapshotter: Lease.Snapshotter.
//   - Runtime: the absolute path layout.Dirs.Shim as runtime name, so that no other shim on PATH is taken,
//     with runc options {Root: layout.Dirs.Runc()}. Without that root, two containerds that use the same
//     namespace share runc's state directory and see each other's containers. containerd itself appends the
//     namespace to it.
//   - Bundles, and in them bootstrap.json with the shim's address: BundleDir.
//   - PATH: the daemon has that of the process that started it, its shims have the daemon's; runc is found there.
package embedded
