// Package e2e drives the built podrun binary as a user does, with real containers: every case has
// its own directories and its own namespace in containerd, and ends with the check that nothing is
// left. It knows the command line, the files that the documentation names and the kernel; nothing
// of podrun's inside.
//
// Begin reading at node in node_test.go, which is one podrun with its directories, and at TestMain.
package e2e
