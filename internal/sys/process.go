package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ProcessStat returns the fields of /proc/PID/stat from the third one, the state, on. The error is
// fs.ErrNotExist if there is no such process.
func ProcessStat(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	// pid (name) state parent …; the name may contain any character.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return nil, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}
	return fields, nil
}

// Parent returns the PID of a process's parent: the process that started it or that it was
// reparented to.
func Parent(pid int) (int, error) {
	fields, err := ProcessStat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[1])
}
