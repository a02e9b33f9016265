package schedule

import (
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func show(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// TestTimes: the last time until now, the next one, and none where there is none, over any distance.
func TestTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, zone, since, now, latest, next string }{
		{"*/5 * * * *", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T10:04:59Z", "", "2026-03-01T10:05:00Z"},
		{"*/5 * * * *", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T10:05:00Z", "2026-03-01T10:05:00Z", "2026-03-01T10:10:00Z"},
		{"*/5 * * * *", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T11:59:59Z", "2026-03-01T11:55:00Z", "2026-03-01T12:00:00Z"},
		// A jump of decades, from a machine without a clock battery.
		{"* * * * *", "UTC", "1970-01-01T00:00:00Z", "2026-03-01T10:00:30Z", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"},
		{"30 6-16/4 * * 1-5", "UTC", "2020-01-01T00:00:00Z", "2026-03-01T10:00:00Z", "2026-02-27T14:30:00Z", "2026-03-02T06:30:00Z"},
		{"0 0 29 2 *", "UTC", "1970-01-01T00:00:00Z", "2026-03-01T10:00:00Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"* * 1 1 *", "UTC", "1970-01-01T00:00:00Z", "2026-03-01T10:00:00Z", "2026-01-01T23:59:00Z", "2027-01-01T00:00:00Z"},
		// There is no such day.
		{"0 0 30 2 *", "UTC", "1970-01-01T00:00:00Z", "2026-03-01T10:00:00Z", "", ""},
		{"@every 90s", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T10:04:00Z", "2026-03-01T10:03:00Z", "2026-03-01T10:04:30Z"},
		{"@every 90s", "UTC", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z", "", "2026-03-01T10:01:30Z"},
		{"@every 1s", "UTC", "1970-01-01T00:00:00Z", "2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z", "2026-03-01T10:00:01Z"},
		{"0 9 * * *", "Asia/Tokyo", "2026-03-01T00:00:00Z", "2026-03-02T00:30:00Z", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z"},
		// An hour that a daylight-saving change leaves out: the time is left out too. 01:00Z is 02:00 and becomes 03:00.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", "", "2026-03-30T00:30:00Z"},
		// An hour that comes twice: the time comes twice. 00:30Z and 01:30Z are both 02:30.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:40:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T12:00:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
	} {
		s, err := New(c.text, &c.zone)
		if err != nil {
			t.Error(err)
			continue
		}
		since, now := at(t, c.since), at(t, c.now)
		if got := show(s.Latest(since, now)); got != c.latest {
			t.Errorf("%s from %s: latest at %s is %q, want %q", c.text, c.since, c.now, got, c.latest)
		}
		if got := show(s.Next(since, now)); got != c.next {
			t.Errorf("%s from %s: next at %s is %q, want %q", c.text, c.since, c.now, got, c.next)
		}
	}
}

func TestExceeds(t *testing.T) {
	t.Parallel()
	zone := "UTC"
	since := at(t, "2026-03-01T10:00:00Z")
	for text, want := range map[string]bool{"* * * * *": true, "0 * * * *": false, "0 0 30 2 *": false, "@every 1m": true} {
		s, err := New(text, &zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Exceeds(100, since, since.Add(101*time.Minute)); got != want {
			t.Errorf("%s: %v", text, got)
		}
		if s.Exceeds(100, since, since.Add(100*time.Minute)) {
			t.Errorf("%s: at 100", text)
		}
	}
}

// TestRefused: what the parser does not take is an error, also where it panics.
func TestRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"TZ=0":         "invalid schedule format: ",
		"TZ=":          "invalid schedule format: ",
		"CRON_TZ=":     "invalid schedule format: ",
		"":             "empty spec string",
		"* * * *":      "expected exactly 5 fields",
		"60 * * * *":   "end of range (60) above maximum (59)",
		"@reboot":      "unrecognized descriptor: @reboot",
		"@every never": "failed to parse duration",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	zone := "Nowhere/City"
	if _, err := New("* * * * *", &zone); err == nil {
		t.Error("an unknown time zone is none")
	}
}
