# A machine of its own for a test, run by `unshare` as process 1 of new namespaces: this system as it is, with every change kept in memory,
# and systemd as its first process. `machine.rs` enters it. Nothing of the real system can be written from inside: it has devices, a
# hierarchy of control groups and temporary folders of its own, and sees the settings of the kernel without being able to change them.
set -eu
if [ "${1:-}" != inside ]; then
    # Its control groups are below one of its own, which `unshare --cgroup` makes the root that it sees.
    mount --make-rprivate /
    mount -t tmpfs -o size=1g,mode=755 tmpfs /mnt
    mkdir /mnt/groups
    mount -t cgroup2 cgroup2 /mnt/groups
    mkdir "/mnt/groups/$GROUP"
    echo $$ > "/mnt/groups/$GROUP/cgroup.procs"
    umount /mnt/groups
    exec unshare --cgroup sh "$0" inside
fi
mkdir /mnt/changes /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/changes,workdir=/mnt/work /mnt/root
cd /mnt/root
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
[ ! -e proc/sysrq-trigger ] || mount --bind /dev/null proc/sysrq-trigger
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
# Never the real /dev: what is removed there is gone for everybody.
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
while read -r name minor; do mknod -m 666 "dev/$name" c 1 "$minor"; done <<'DEVICES'
null 3
zero 5
full 7
random 8
urandom 9
DEVICES
mknod -m 666 dev/tty c 5 0
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mkdir -p srv/shared
mount --bind "$SHARED" srv/shared
# Services of this system must not start in it, and a package may start its own.
rm -rf etc/systemd/system/*.wants usr/lib/systemd/system/sysinit.target.wants usr/lib/systemd/system/multi-user.target.wants \
    usr/lib/systemd/system/local-fs.target.wants usr/lib/systemd/system/sockets.target.wants \
    usr/lib/systemd/system/timers.target.wants usr/sbin/policy-rc.d etc/fstab
# The real root is out of reach: it is no mount of this namespace any more.
mkdir mnt/old 2> /dev/null || true
pivot_root . mnt/old
umount --lazy /mnt/old
exec env --ignore-environment container=satcast-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set=-sys_time,-sys_module,-sys_rawio,-syslog,-sys_boot \
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=no
