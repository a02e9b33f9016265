package pod

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                  `null`,
		"storage":           `[{"name":"storage","interface":"net1"}]`,
		"a, default/b@data": `[{"name":"a","interface":"net1"},{"name":"b","namespace":"default","interface":"data"}]`,
		`[{"name":"a","ips":["10.1.2.3/24"],"mac":"02:00:00:00:00:01"}]`: `[{"name":"a","interface":"net1","ips":["10.1.2.3/24"],"mac":"02:00:00:00:00:01"}]`,
		"a,,b":                       `"" cannot be a network's name`,
		"a/b/c":                      `cannot be a network's name`,
		"a@eth0":                     `the link eth0 is the pod's already`,
		"a@x,b@x":                    `the link x is the pod's already`,
		"a@net2,b":                   `the link net2 is the pod's already`,
		"a@a/b":                      `cannot be a link's name`,
		"a@abcdefghijklmnop":         `cannot be a link's name`,
		`[{"name":"a","x":1}]`:       `unknown field`,
		`[{"name":"a"}] more`:        `must be a list of networks`,
		`[{"name":"a","ips":["x"]}]`: `"x" is not an IP address`,
		`[{"name":"a","mac":"x"}]`:   `"x" is not a link's address`,
	} {
		p := &v1.Pod{}
		p.Annotations = map[string]string{AnnotationNetworks: text}
		all, err := Networks(p)
		got, bad := json.Marshal(all)
		if bad != nil {
			t.Fatal(bad)
		}
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != want && (err == nil || !strings.Contains(string(got), want)) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
