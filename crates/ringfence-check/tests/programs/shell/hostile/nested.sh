#!/bin/bash
# expect: error=shell.remove_root error=shell.format_device
sudo env X=1 nohup sh -c "bash -c 'eval \"rm -rf /etc\"'" &
find / -maxdepth 1 -exec sh -c 'mkfs.ext4 /dev/sda1' \;
