package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser is a headless Chromium with one page, driven by its DevTools protocol over a pair of pipes.
type browser struct {
	t       *testing.T
	out     *os.File
	in      *os.File
	lines   *bufio.Reader
	session string
	last    int
	// errors are what the page's console shows as errors, without those of the network.
	errors []string
}

// newBrowser starts Debian's Chromium; it ends with the test.
func newBrowser(t *testing.T, dir string, flags ...string) *browser {
	t.Helper()
	theirIn, out, err := os.Pipe()
	must(t, err)
	in, theirOut, err := os.Pipe()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "chromium", append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions",
		"--remote-debugging-pipe", "--user-data-dir="+dir, "about:blank")...)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	must(t, cmd.Start())
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, out: out, in: in, lines: bufio.NewReader(in)}
	t.Cleanup(func() {
		_ = b.ask("Browser.close", nil, nil) // it takes its own processes along
		ended := time.AfterFunc(10*time.Second, cancel)
		_ = cmd.Wait()
		ended.Stop()
		cancel()
		out.Close()
		in.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Log.enable", nil, nil)
	b.call("Runtime.enable", nil, nil)
	b.size(1200, 800)
	return b
}

// notice is what the browser tells unasked.
type notice struct {
	Method string
	Params struct {
		Entry            struct{ Source, Level, Text string }
		Type             string
		Args             []struct{ Value, Description any }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
}

// error returns the error that a notice is, "" for none. That podrun cannot be reached is no error of a page.
func (n notice) error() string {
	switch p := n.Params; {
	case n.Method == "Runtime.exceptionThrown":
		return p.ExceptionDetails.Text + " " + p.ExceptionDetails.Exception.Description
	case n.Method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "assert"):
		return fmt.Sprint(p.Args)
	case n.Method == "Log.entryAdded" && p.Entry.Level == "error" && p.Entry.Source != "network":
		return p.Entry.Source + ": " + p.Entry.Text
	}
	return ""
}

// ask sends a command and reads its answer; of what else the browser tells, errors are kept.
func (b *browser) ask(method string, params, into any) error {
	b.last++
	text, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" || method == "Browser.close" {
		text, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	if err := errors.Join(b.out.SetDeadline(deadline), b.in.SetDeadline(deadline)); err != nil {
		return err
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		line, err := b.lines.ReadBytes(0)
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
			notice
		}
		if err := json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &answer); err != nil {
			return err
		}
		if text := answer.error(); text != "" {
			b.errors = append(b.errors, text)
		}
		switch {
		case answer.ID != b.last:
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", method, answer.Error.Message)
		case into != nil:
			return json.Unmarshal(answer.Result, into)
		default:
			return nil
		}
	}
}

func (b *browser) call(method string, params, into any) {
	b.t.Helper()
	if err := b.ask(method, params, into); err != nil {
		b.t.Fatal(err)
	}
}

// text evaluates an expression in the page; its value is shown as text.
func (b *browser) text(expression string) string {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	err := b.ask("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if err != nil && strings.Contains(err.Error(), "Inspected target navigated") {
		return "exception: " + err.Error() // between two pages
	}
	must(b.t, err)
	if answer.ExceptionDetails != nil {
		return "exception: " + answer.ExceptionDetails.Exception.Description
	}
	return fmt.Sprint(answer.Result.Value)
}

// until waits until the expression's text has want in it.
func (b *browser) until(expression, want string) {
	b.t.Helper()
	await(b.t, patience, expression, func() error {
		if got := b.text(expression); !strings.Contains(got, want) {
			return fmt.Errorf("no %q in %q", want, got)
		}
		return nil
	})
}

// navigate goes to a page. Chromium gives up whatever waits for a connection when an address of the machine comes or goes, as
// those of other tests' pods do; so would a person ask again.
func (b *browser) navigate(url string) {
	b.t.Helper()
	await(b.t, patience, url, func() error {
		var answer struct{ ErrorText string }
		b.call("Page.navigate", map[string]any{"url": url}, &answer)
		if answer.ErrorText == "net::ERR_NETWORK_CHANGED" {
			return errors.New(answer.ErrorText)
		}
		return nil
	})
}

// open loads a page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.navigate(url)
	b.until("document.readyState + ' ' + location.href", "complete "+url)
}

// size makes the page so large; a narrow one is a telephone's.
func (b *browser) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
}

// press presses a key.
func (b *browser) press(key string) {
	b.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}[key]
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		down["text"] = "\r"
	}
	b.call("Input.dispatchKeyEvent", down, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// tree is the page as a screen reader has it: a line for each node, ROLE "NAME", and what is said of its own accord.
func (b *browser) tree() string {
	b.t.Helper()
	type value struct{ Value any }
	var answer struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
			Properties []struct {
				Name  string
				Value value
			}
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &answer)
	var out strings.Builder
	for _, n := range answer.Nodes {
		if n.Ignored {
			continue
		}
		fmt.Fprintf(&out, "%v %q", n.Role.Value, n.Name.Value)
		for _, p := range n.Properties {
			if p.Name == "live" {
				fmt.Fprintf(&out, " live=%v", p.Value.Value)
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// picture is the page as it looks. PODRUN_E2E_PICTURES names a directory to keep it in, for people.
func (b *browser) picture(name string) image.Image {
	b.t.Helper()
	var answer struct{ Data string }
	b.call("Page.captureScreenshot", nil, &answer)
	data, err := base64.StdEncoding.DecodeString(answer.Data)
	must(b.t, err)
	if dir := os.Getenv("PODRUN_E2E_PICTURES"); dir != "" {
		must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644))
	}
	img, err := png.Decode(bytes.NewReader(data))
	must(b.t, err)
	return img
}
