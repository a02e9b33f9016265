package host

import (
	"testing"
	"time"
)

func TestReadUsage(t *testing.T) {
	u, err := ReadUsage()
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU <= 0 || u.WorkingSet <= 0 || u.WorkingSet > u.Memory || u.Memory > u.Total || !u.Since.Before(time.Now()) || u.Since.Year() < 2020 {
		t.Errorf("%+v", u)
	}
}
