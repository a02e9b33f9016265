package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSlowHelper checks that a credential helper that does not answer is killed in time, and when the pull ends.
func TestSlowHelper(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-slow"), []byte("#!/bin/sh\nsleep 600 &\nwait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	began := time.Now()
	_, _, err := ask(t.Context(), 50*time.Millisecond, "slow", "a.example")
	if err == nil || !strings.Contains(err.Error(), "docker-credential-slow for a.example") || !strings.Contains(err.Error(), "50ms") {
		t.Error(err)
	}
	file := filepath.Join(bin, "config.json")
	if err := os.WriteFile(file, []byte(`{"credsStore":"slow"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = NewKeyring(nil, Credentials{Path: file}, "x").For(ctx, "a.example")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "docker-credential-slow") {
		t.Error(err)
	}
	if took := time.Since(began); took > helperLimit/2 {
		t.Errorf("it took %s", took)
	}
}
