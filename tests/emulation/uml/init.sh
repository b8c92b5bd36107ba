#!/bin/sh
# First process of the user-mode kernel: the host's files under a layer in memory, kernel modules, then the job.
PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH
mount -t proc proc /proc
job=$(sed -n 's/.*UMLCMD=\([^ ]*\).*/\1/p' /proc/cmdline)
modules="sch_netem sch_htb sch_tbf veth bridge nfnetlink_queue xt_NFQUEUE iptable_raw tcp_bbr cls_u32 nf_tables nft_compat"
/usr/bin/python3 -S "$job/load_modules.py" overlay $modules
mount -t tmpfs tmpfs /mnt
mkdir /mnt/up /mnt/work /mnt/root /mnt/job
cp "$job"/* /mnt/job
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work /mnt/root
for kind in proc sysfs; do mount -t $kind $kind /mnt/root/${kind%fs}; done
for place in run tmp; do mount -t tmpfs tmpfs /mnt/root/$place; done
mkdir -p /mnt/root/dev/shm /mnt/root/dev/pts
mount -t devpts -o ptmxmode=666 devpts /mnt/root/dev/pts
ln -sf pts/ptmx /mnt/root/dev/ptmx
[ -c /mnt/root/dev/null ] || mknod /mnt/root/dev/null c 1 3
cp /mnt/job/* /mnt/root/tmp
chroot /mnt/root sh /tmp/job.sh 2>&1
poweroff -f 2>/dev/null || echo o > /proc/sysrq-trigger
