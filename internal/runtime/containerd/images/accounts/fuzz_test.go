package accounts

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// FuzzAccounts looks up users in images' account files. A user that is found must have numbers that
// runc accepts, from the requested entry or from the requested number itself: a number that is out
// of range must not become another one, such as root's.
func FuzzAccounts(f *testing.F) {
	const passwd = "root:x:0:0::/:\nworker:x:7:8::/:\n# a comment\n\n:x:9:9\n"
	const group = "root:x:0:\ncrew:x:11:\nmore:x:12:worker,other\n"
	for _, name := range []string{"", "worker", "worker:crew", "7", "7:8", "0", "nobody", "-1", "4294967296", ":", "worker:", "#"} {
		f.Add([]byte(passwd), []byte(group), name)
	}
	f.Add([]byte("worker:x:4294967296:0::/:\n"), []byte{}, "worker")
	f.Add([]byte("worker:x:7:4294967296::/:\n"), []byte{}, "worker")
	f.Add([]byte("worker:x:-1:-1::/:\n"), []byte{}, "worker")
	f.Add([]byte("worker:x:7:8::/:\n"), []byte("more:x:4294967296:worker\n"), "worker:more")
	f.Add(bytes.Repeat([]byte("worker"), 20000), []byte{}, "worker")
	f.Fuzz(func(t *testing.T, passwd, group []byte, name string) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "etc"), 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string][]byte{"passwd": passwd, "group": group} {
			if err := os.WriteFile(filepath.Join(root, "etc", file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		found, err := Find(root, name)
		if err != nil {
			return
		}
		for _, id := range append([]uint32{found.UID, found.GID}, found.AdditionalGids...) {
			if id > math.MaxInt32 {
				t.Errorf("user %q has the number %d", name, id)
			}
		}
		owner, _, _ := strings.Cut(name, ":")
		if want := strconv.FormatUint(uint64(found.UID), 10); owner != want && !names(passwd, owner, want) && strings.TrimLeft(owner, "0") != strings.TrimLeft(want, "0") {
			t.Errorf("user %q is %s, as no account says: %q", name, want, passwd)
		}
	})
}

// names reports whether there is an entry with that name and number.
func names(passwd []byte, name, number string) bool {
	for line := range strings.Lines(string(passwd)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) > 2 && fields[0] == name && strings.TrimLeft(fields[2], "0") == strings.TrimLeft(number, "0") && fields[2] != "" {
			return true
		}
	}
	return false
}
