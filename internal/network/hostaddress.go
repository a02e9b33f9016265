package network

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/netdev"
)

// HostAddress is the machine's own address: it may come after podrun, change and go. Its methods may be called from any
// goroutine.
type HostAddress struct {
	log   *slog.Logger
	state atomic.Pointer[hostAddress]
}

type hostAddress struct {
	ip   string // the last one; "" if there was none yet
	gone bool   // the machine has no address now
}

// ReadHostAddress returns the machine's address as it is now. Run keeps it up to date.
func ReadHostAddress(log *slog.Logger) *HostAddress {
	a := FixedHostAddress("")
	a.log = log
	a.read()
	return a
}

// FixedHostAddress returns an address that stays as it is; "" is none. Run must not be called.
func FixedHostAddress(ip string) *HostAddress {
	a := &HostAddress{log: slog.New(slog.DiscardHandler)}
	a.state.Store(&hostAddress{ip: ip, gone: ip == ""})
	return a
}

// IP returns the machine's address, or the one that it had last; "" if it had none yet.
func (a *HostAddress) IP() string { return a.state.Load().ip }

// ProbeIP returns the address at which this machine reaches its own servers: its own address, or loopback while it has
// none, so that servers are not restarted because a cable is unplugged.
func (a *HostAddress) ProbeIP() string {
	if s := a.state.Load(); !s.gone {
		return s.ip
	}
	return "127.0.0.1"
}

// read reads the address and reports whether it has changed. What cannot be read is as it was.
func (a *HostAddress) read() bool {
	before := a.state.Load()
	ip, err := HostIP()
	now := &hostAddress{ip: ip.String()}
	switch {
	case errors.Is(err, errNoAddress):
		now = &hostAddress{ip: before.ip, gone: true}
	case err != nil:
		a.log.Warn("reading the machine's address failed", "err", err)
		return false
	}
	a.state.Store(now)
	return *now != *before
}

// Run follows the machine's address until ctx ends, and calls changed after each change.
func (a *HostAddress) Run(ctx context.Context, changed func()) error {
	groups := []int{
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_LINK, // the routes of a link that is set down go without a word
	}
	return netdev.Watch(ctx, netdev.Watched{Protocol: unix.NETLINK_ROUTE, Groups: groups, Matters: mayMove}, func() {
		if a.read() {
			a.log.Info("the machine's address has changed", "address", a.IP(), "gone", a.state.Load().gone)
			changed()
		}
	})
}

// mayMove reports whether the machine's address may be another one after what a message says. There may be thousands of
// routes to elsewhere that change all the time.
func mayMove(message []byte) bool {
	const fixed = unix.NLMSG_HDRLEN // where the message's own fields begin
	switch binary.NativeEndian.Uint16(message[4:]) {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE: // struct rtmsg: rtm_dst_len, 0 in a default route
		return message[fixed+1] == 0
	case unix.RTM_NEWADDR, unix.RTM_DELADDR: // struct ifaddrmsg: ifa_scope
		return message[fixed+3] == unix.RT_SCOPE_UNIVERSE
	case unix.RTM_NEWLINK: // struct ifinfomsg: ifi_family, of ports of bridges; ifi_change
		return message[fixed] == unix.AF_BRIDGE || binary.NativeEndian.Uint32(message[fixed+12:])&unix.IFF_UP != 0
	}
	return true
}
