package cni

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types "github.com/containernetworking/cni/pkg/types/100"
)

// spoken is a plugin that writes what it is told to.
type spoken struct {
	*pluginExec
	stdout []byte
}

// ExecPlugin implements invoke.Exec.
func (s spoken) ExecPlugin(context.Context, string, []byte, []string) ([]byte, error) {
	return s.stdout, checkOutput(s.stdout)
}

// FuzzResult: any output of a plugin's ADD is either an error or a list of addresses, IPv4 first.
func FuzzResult(f *testing.F) {
	versions := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	for n := range versions {
		f.Add([]byte(`{"cniVersion":"1.0.0","interfaces":[{"name":"br0"},{"name":"eth0","sandbox":"/run/ns"}],
			"ips":[{"address":"fd00::2/64","interface":1},{"address":"10.0.0.1/24","interface":0},{"address":"10.0.0.2/24","interface":1}],
			"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}],"dns":{"nameservers":["10.0.0.1"]}}`), uint8(n))
		f.Add([]byte(`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[{"dst":"0.0.0.0/0"}]},"ip6":null}`), uint8(n))
		f.Add([]byte(`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24","interface":-1}]}`), uint8(n))
		f.Add([]byte(`{"ips":[null]}`), uint8(n))
		f.Add([]byte(`{"interfaces":[null],"ips":[{"address":"10.0.0.2/24","interface":0}]}`), uint8(n))
		f.Add([]byte(`{"ips":[{"address":"10.0.0.2/24"}],"routes":[null]}`), uint8(n))
		f.Add([]byte(`null`), uint8(n))
	}
	f.Fuzz(func(t *testing.T, stdout []byte, version uint8) {
		said := versions[int(version)%len(versions)]
		conf := []byte(`{"cniVersion":"` + said + `","name":"n","type":"t"}`)
		exec := spoken{pluginExec: &pluginExec{log: slog.New(slog.DiscardHandler)}, stdout: stdout}
		result, err := invoke.ExecPluginWithResult(t.Context(), "/t", conf, &invoke.Args{Command: "ADD"}, exec)
		if err != nil {
			return
		}
		got, err := types.NewResultFromResult(result)
		if err != nil {
			return
		}
		if _, err := json.Marshal(result); err != nil { // as CNI's library keeps it
			t.Fatal(err)
		}
		addrs, err := addressesOf(got, "n")
		if (len(addrs) == 0) != (err != nil) {
			t.Fatalf("%v, %v", addrs, err)
		}
		for i, a := range addrs {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("no pod's address: %v", a)
			}
			if i > 0 && a.BitLen() < addrs[i-1].BitLen() {
				t.Errorf("not IPv4 first: %v", addrs)
			}
		}
	})
}

// FuzzConfiguration reads arbitrary files in the directory of CNI configurations. A configuration
// that is accepted at a pod's setup must be accepted, with the same contents, when its record is
// read at the teardown: otherwise its addresses would stay allocated.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.0.0","name":"mine","plugins":[{"type":"bridge","capabilities":{"portMappings":true},"ipam":{"type":"host-local"}}]}`), true)
	f.Add([]byte(`{"cniVersion":"0.4.0","name":"old","type":"bridge"}`), false)
	f.Add([]byte(`{"name":"none","plugins":[]}`), true)
	f.Add([]byte(`{"name":"none","plugins":[null]}`), true)
	f.Add([]byte(`{"name":"none","plugins":null,"disableCheck":"true","cniVersions":["1.0.0","bad"]}`), true)
	f.Add([]byte(`null`), false)
	f.Fuzz(func(t *testing.T, text []byte, isList bool) {
		path := filepath.Join(t.TempDir(), "10-net.conf")
		if isList {
			path += "list"
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := readConfiguration(path)
		if err != nil {
			return
		}
		if len(list.Plugins) == 0 {
			t.Fatal("accepted without a plugin")
		}
		for _, p := range list.Plugins {
			if p.Network.Type == "" {
				t.Errorf("accepted with a plugin that has no name: %s", p.Bytes)
			}
		}
		record, err := json.Marshal(attachment{Conflist: list.Bytes, Others: []additionalNetwork{{Conflist: list.Bytes, Link: "net1"}}})
		if err != nil {
			t.Fatalf("the record cannot be written: %v", err)
		}
		var a attachment
		if err := json.Unmarshal(record, &a); err != nil {
			t.Fatalf("the record cannot be read: %v", err)
		}
		back, err := libcni.NetworkConfFromBytes(a.Conflist)
		if err != nil {
			t.Fatalf("%s cannot be released: %v", record, err)
		}
		if back.Name != list.Name || len(back.Plugins) != len(list.Plugins) || back.CNIVersion != list.CNIVersion {
			t.Fatalf("%+v is released as %+v", list, back)
		}
		for i, p := range back.Plugins {
			if p.Network.Type != list.Plugins[i].Network.Type {
				t.Errorf("plugin %q is released as %q", list.Plugins[i].Network.Type, p.Network.Type)
			}
		}
	})
}
