// Package vm tests podrun on whole machines: a Debian with its own kernel, cgroup v2 and systemd boots
// in qemu, podrun is installed from its package, and a test drives the machine from outside, also
// across reboots. It knows the command line, the unit and the files that the documentation names;
// nothing of podrun's inside.
//
// The test binary is the guest's agent too: a second disk carries it into the guest, where systemd starts
// it with PODRUN_VM_AGENT=1.
//
// Begin reading at machine in machine_test.go, and at TestMain.
package vm
