// Package e2e drives the built podrun binary as a user does, with real containers: every case has its own
// directories and its own namespace in containerd, and ends with the check that nothing is left. It knows
// the command line, the files of the contract and the kernel; nothing of podrun's inside.
package e2e
