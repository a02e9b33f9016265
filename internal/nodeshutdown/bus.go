package nodeshutdown

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const (
	// systemBus is the standard address, if the environment has no other.
	systemBus = "unix:path=/var/run/dbus/system_bus_socket"
	theBus    = "org.freedesktop.DBus"
	// answerTime is how long the bus and logind may take to answer one after another.
	answerTime = 30 * time.Second
	// mostMessage is the size of the longest message that is decoded, in bytes. What podrun waits for has hundreds.
	mostMessage = 32 << 10
	// mostFiles is how many files the kernel passes at once (SCM_MAX_FD).
	mostFiles = 253
)

// bus is a connection to a message bus. Every user of the machine may send signals to it: as long and as many as they
// like, with files. A library's connection decodes and queues all of them, and keeps the files open.
type bus struct {
	conn   *net.UnixConn
	serial uint32
	// other gets each message that is no reply to a call.
	other func(*dbus.Message)
	// files came with what was read of the message.
	files []int
}

// dial connects to the first bus of an address. The bus delivers no message with files to a connection that does not
// ask for them. The connection must be used within answerTime, unless its deadline is changed.
func dial(ctx context.Context, address string, withFiles bool) (*bus, error) {
	var all error
	for one := range strings.SplitSeq(address, ";") {
		conn, err := connect(ctx, one)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		b := &bus{conn: conn, other: func(*dbus.Message) {}}
		context.AfterFunc(ctx, func() { conn.Close() })
		err = conn.SetDeadline(time.Now().Add(answerTime))
		if err == nil {
			err = b.authenticate(withFiles)
		}
		if err == nil {
			_, err = b.call(theBus, "/org/freedesktop/DBus", theBus+".Hello")
		}
		if err == nil {
			return b, nil
		}
		conn.Close()
		all = errors.Join(all, fmt.Errorf("%s: %w", one, err))
	}
	return nil, all
}

// connect connects to a socket that is named as in D-Bus: unix:path=… or unix:abstract=….
func connect(ctx context.Context, address string) (*net.UnixConn, error) {
	of, _ := strings.CutPrefix(address, "unix:")
	for pair := range strings.SplitSeq(of, ",") {
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.PathUnescape(value)
		if err != nil {
			return nil, fmt.Errorf("the address %s: %w", address, err)
		}
		switch key {
		case "abstract":
			name = "@" + name
		case "path":
		default:
			continue
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
		if err != nil {
			return nil, err
		}
		return conn.(*net.UnixConn), nil
	}
	return nil, fmt.Errorf("%q is no address of a Unix socket", address)
}

// authenticate says who podrun is, which the bus asks the kernel.
func (b *bus) authenticate(withFiles bool) error {
	user := hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))
	steps := [][2]string{{"\x00AUTH EXTERNAL " + user, "OK "}}
	if withFiles {
		steps = append(steps, [2]string{"NEGOTIATE_UNIX_FD", "AGREE_UNIX_FD"})
	}
	for _, step := range steps {
		if _, err := io.WriteString(b.conn, step[0]+"\r\n"); err != nil {
			return err
		}
		answer, err := b.line()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(answer, step[1]) {
			return fmt.Errorf("the bus answers %q", answer)
		}
	}
	_, err := io.WriteString(b.conn, "BEGIN\r\n")
	return err
}

// line reads a line and no byte of what follows.
func (b *bus) line() (string, error) {
	var text []byte
	for len(text) < mostMessage {
		var c [1]byte
		if _, err := io.ReadFull(b.conn, c[:]); err != nil {
			return "", err
		}
		if c[0] == '\n' {
			return strings.TrimSuffix(string(text), "\r"), nil
		}
		text = append(text, c[0])
	}
	return "", errors.New("the answer of the bus has no end")
}

// call calls a method, whose name includes that of its interface, and returns what it returns. A file is os.File.
func (b *bus) call(to string, at dbus.ObjectPath, method string, arguments ...any) ([]any, error) {
	b.serial++
	last := strings.LastIndexByte(method, '.')
	m := &dbus.Message{Type: dbus.TypeMethodCall, Body: arguments, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(to), dbus.FieldPath: dbus.MakeVariant(at),
		dbus.FieldInterface: dbus.MakeVariant(method[:last]), dbus.FieldMember: dbus.MakeVariant(method[last+1:]),
	}}
	if len(arguments) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(arguments...))
	}
	var text bytes.Buffer
	if err := m.EncodeTo(&text, binary.LittleEndian); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(text.Bytes()[8:], b.serial) // which the library leaves to its connections
	if _, err := b.conn.Write(text.Bytes()); err != nil {
		return nil, err
	}
	for {
		reply, err := b.next()
		if err != nil {
			return nil, err
		}
		serial, _ := reply.Headers[dbus.FieldReplySerial].Value().(uint32)
		switch {
		case reply.Type == dbus.TypeMethodReply && serial == b.serial:
			return b.withFiles(reply.Body), nil
		case reply.Type == dbus.TypeError && serial == b.serial:
			name, _ := reply.Headers[dbus.FieldErrorName].Value().(string)
			return nil, dbus.Error{Name: name, Body: reply.Body}
		}
		b.other(reply)
	}
}

// withFiles puts the files that came with a message in the places of their indexes.
func (b *bus) withFiles(body []any) []any {
	for i, v := range body {
		if n, isFile := v.(dbus.UnixFDIndex); isFile && int(n) < len(b.files) && b.files[n] >= 0 {
			body[i] = os.NewFile(uintptr(b.files[n]), "received")
			b.files[n] = -1
		}
	}
	return body
}

// next returns the next message that is not too long. Until the next call, its files are in b.files.
func (b *bus) next() (*dbus.Message, error) {
	for {
		b.closeFiles()
		var head [16]byte
		if _, err := io.ReadFull(b, head[:]); err != nil {
			return nil, err
		}
		order := binary.ByteOrder(binary.LittleEndian)
		if head[0] == 'B' {
			order = binary.BigEndian
		}
		const aligned = 8
		fields := (int64(order.Uint32(head[12:])) + aligned - 1) / aligned * aligned
		rest := fields + int64(order.Uint32(head[4:]))
		if rest > mostMessage {
			if _, err := io.CopyN(io.Discard, b, rest); err != nil {
				return nil, err
			}
			continue
		}
		text := make([]byte, len(head)+int(rest))
		if _, err := io.ReadFull(b, text[copy(text, head[:]):]); err != nil {
			return nil, err
		}
		if m, err := dbus.DecodeMessage(bytes.NewReader(text)); err == nil {
			return m, nil
		}
	}
}

// Read implements io.Reader. It adds the files that come with the bytes to b.files.
func (b *bus) Read(p []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(4*mostFiles))
	n, controls, _, _, err := b.conn.ReadMsgUnix(p, control)
	if err != nil {
		return n, err
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil {
		return n, err
	}
	for _, m := range messages {
		if files, err := unix.ParseUnixRights(&m); err == nil {
			b.files = append(b.files, files...)
		}
	}
	return n, nil
}

func (b *bus) closeFiles() {
	for _, fd := range b.files {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	b.files = nil
}

// Close ends the connection. No call may be running.
func (b *bus) Close() {
	b.closeFiles()
	b.conn.Close()
}
