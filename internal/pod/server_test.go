package pod

import "testing"

func TestServerName(t *testing.T) {
	for text, want := range map[string]string{
		"files.example": "files.example", "Files.Example.": "Files.Example.", "nas": "nas", "nas_1.lan": "nas_1.lan", "192.0.2.1": "192.0.2.1",
		"2001:db8::1": "[2001:db8::1]", "[2001:db8::1]": "[2001:db8::1]", "fe80::1%eth0": "[fe80::1%eth0]",
		// None of these may reach a program.
		"": "", "-o": "", "--fstab=/tmp/x": "", "-": "", "a b": "", "a\n": "", "a:/x": "", "a,b": "", "/srv": "", "LABEL=x": "",
		"[192.0.2.1]": "", "[files.example]": "", "[2001:db8::1": "", "2001:db8::1]": "", "fe80::1%a/b": "", "fe80::1% -o": "",
		"[]": "", "files..example": "", ".": "", "a\x00": "", "_x": "", "files.example-": "",
	} {
		if got, err := ServerName(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
