package sys

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOperands: an operand can never be an option, and each comes after "--".
func TestOperands(t *testing.T) {
	for _, make := range map[string]func() (Operand, error){
		"relative":     func() (Operand, error) { return PathOperand("-t") },
		"no path":      func() (Operand, error) { return PathOperand("") },
		"cut off path": func() (Operand, error) { return PathOperand("/a\x00b") },
		"option":       func() (Operand, error) { return WordOperand("--all") },
		"two words":    func() (Operand, error) { return WordOperand("a b") },
		"no word":      func() (Operand, error) { return WordOperand("") },
		"server":       func() (Operand, error) { return ExportOperand("--fstab=x", "/") },
		"no server":    func() (Operand, error) { return ExportOperand("", "/") },
		"tag":          func() (Operand, error) { return ExportOperand("LABEL=x", "/") },
		"export":       func() (Operand, error) { return ExportOperand("files.example", "srv") },
	} {
		if o, err := make(); err == nil {
			t.Errorf("%q is an operand", o.text)
		}
	}
	p := Program{Name: "mount", Options: []string{"-t", "nfs"}, Operands: []Operand{
		operand(ExportOperand("[2001:db8::1]", "/-o")), operand(PathOperand("/mnt")), operand(WordOperand("a.b_c-d")),
	}}
	if got := p.String(); got != "mount -t nfs -- [2001:db8::1]:/-o /mnt a.b_c-d" {
		t.Error(got)
	}
}

func operand(o Operand, err error) Operand {
	if err != nil {
		panic(err)
	}
	return o
}

func TestProgram(t *testing.T) {
	sh := func(line string) Program { return Program{Name: "sh", Options: []string{"-c", line}} }
	out, err := Program{Name: "sh", Options: []string{"-c", "cat; echo $A; echo err >&2"}, Env: []string{"A=b", "PATH=" + os.Getenv("PATH")}, Stdin: []byte("in\n")}.Run(t.Context(), time.Minute)
	if err != nil || string(out.Stdout) != "in\nb\n" || string(out.Stderr) != "err\n" || out.Text() != "in\nb\nerr" {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := sh("exit 3").Run(t.Context(), time.Minute); err == nil || !out.Started || err.Error() != "exit status 3" {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := (Program{Name: "no-such-program"}).Run(t.Context(), time.Minute); !errors.Is(err, ErrNoProgram) || out.Started {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := sh("yes | head -c 3000000").Run(t.Context(), time.Minute); err != nil || len(out.Stdout) != defaultMaxOutput || !out.Truncated {
		t.Errorf("%d bytes, truncated %t, %v", len(out.Stdout), out.Truncated, err)
	}
	bounded := sh("printf abc; printf x >&2")
	for most, truncated := range map[int]bool{2: true, 3: false} {
		bounded.MaxOutput = most
		if out, err := bounded.Run(t.Context(), time.Minute); err != nil || string(out.Stdout) != "abc"[:most] || out.Truncated != truncated {
			t.Errorf("at most %d: %+v, %v", most, out, err)
		}
	}
}

// TestProgramIsBounded: at its limit a program is killed together with the processes that it
// started.
func TestProgramIsBounded(t *testing.T) {
	child := filepath.Join(t.TempDir(), "child")
	begun := time.Now()
	_, err := Program{Name: "sh", Options: []string{"-c", "sleep 1000 & echo $! >" + child + "; wait"}}.Run(t.Context(), 200*time.Millisecond)
	if err == nil || err.Error() != "sh is killed: not done within 200ms" || time.Since(begun) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	text, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); runs(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what it started runs on")
		}
	}
}

func runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestEndPrograms: EndPrograms kills a program that hangs, with its child processes, although its
// context has not ended, and no other program can start.
func TestEndPrograms(t *testing.T) {
	file, all := filepath.Join(t.TempDir(), "child"), &groups{}
	run := func(line string) error {
		_, err := Program{Name: "sh", Options: []string{"-c", line}}.run(t.Context(), time.Minute, all)
		return err
	}
	done := make(chan error, 1)
	go func() { done <- run("sleep 1000 & echo $! >" + file + "; wait") }()
	child := 0
	for end := time.Now().Add(10 * time.Second); child == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	all.end()
	if err := <-done; err == nil {
		t.Error("it is said to have gone well")
	}
	runs := func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		return err == nil && !strings.Contains(string(stat), ") Z ") // whoever is init here may not reap it
	}
	for end := time.Now().Add(5 * time.Second); child != 0 && runs(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			_ = unix.Kill(child, unix.SIGKILL)
			t.Fatal("its child is left")
		}
	}
	if err := run("exit 0"); child == 0 || !errors.Is(err, errEnding) {
		t.Errorf("child %d; run after the end: %v", child, err)
	}
}
