// Package embedded is podrun's own containerd: a minimal daemon that runs in a detached re-exec of podrun,
// and the runc shim (package runcshim) in the same binary. Start reading at Ensure, with which a client
// starts the daemon and gets a Lease that it holds while it uses the daemon. Serve is what the re-exec
// runs. Dispatch runs the shim, or the stand-in for runc (package secretenv), if the binary was called by
// the name of one of them.
//
// The package does not own any container: its clients do. It does not include runc, which must be on
// PATH. It does not pull images and does not know pods.
//
// # Lifetime
//
// There is one daemon per run directory. It runs as long as a client holds a Lease or there is a task in
// any namespace, and exits when there is neither for Options.IdleGrace, or for a minute after
// Lease.KeepWarm. Container records, snapshots and images do not keep it running; they are available again
// at its next start. Running containers survive when the daemon is terminated or killed: their shims
// continue, and the next daemon connects to them. A Lease is only a lock that the kernel releases with the
// process, so a killed client counts as one that has closed its Lease. After the daemon has died, its
// clients call Ensure again.
//
// # For clients
//
//   - Address: Lease.Address, the gRPC socket. Snapshotter: Lease.Snapshotter.
//   - Runtime: the absolute path layout.Dirs.Embedded().Shim() as runtime name, so that no other shim on
//     PATH is used, with runc options {Root: layout.Dirs.Runc()}. Without that root, two containerds that
//     use the same namespace share runc's state directory and see each other's containers. containerd
//     itself appends the namespace to it.
//   - Bundles: BundleDir. bootstrap.json in a bundle has the shim's address.
//   - PATH: the daemon has that of the process that started it, and its shims have the daemon's. runc is
//     searched there.
package embedded
