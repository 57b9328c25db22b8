# profiles: network
import smtplib
from email.message import EmailMessage
from email.mime.text import MIMEText

message = EmailMessage()
message["Subject"] = "Hello"
message.set_content("text")
print(message["Subject"], MIMEText("x").get_content_type(), smtplib.SMTP_PORT)
